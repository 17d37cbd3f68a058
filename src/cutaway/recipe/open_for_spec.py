"""Open the models that a spec names, with the spec's precision and device."""

from typing import Any

from cutaway.models.lm import LM
from cutaway.models.load import open_model
from cutaway.recipe.objects import Objects


def open_for_spec(name: str, spec: Any, objects: Objects | None = None, **options: Any) -> LM:
    """Open a model by name; `options` are those of `open_model` and override the spec.

    A model given as an object is used as it is. No checksum is made of the weights, since the model
    never leaves the run.
    """
    where = {
        "dtype": spec.dtype, "device": spec.device, "offline": spec.offline, "watch": False,
    }  # fmt: skip
    return open_model((objects or {}).get(name, name), **(where | options))


def open_spec_model(spec: Any, objects: Objects | None = None) -> LM:
    """Open the only model of a spec, at its revision."""
    return open_for_spec(spec.model, spec, objects, revision=spec.revision)
