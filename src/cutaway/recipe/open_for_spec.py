"""Models that specs name, opened as the spec says; the object itself when Python gave one."""

from typing import Any

from cutaway.models.lm import LM
from cutaway.models.load import open_model
from cutaway.recipe.objects import Objects


def open_for_spec(name: str, spec: Any, objects: Objects | None = None, **options: Any) -> LM:
    """The model called so, in the spec's precision, on its device; options are `open_model`'s.

    An option that is given wins over the spec. An object given from Python is taken as it is. What
    is opened here never leaves the run, so no print is made of its weights.
    """
    where = {
        "dtype": spec.dtype, "device": spec.device, "offline": spec.offline, "watch": False,
    }  # fmt: skip
    return open_model((objects or {}).get(name, name), **(where | options))


def open_spec_model(spec: Any, objects: Objects | None = None) -> LM:
    """The one model of a spec, at its revision."""
    return open_for_spec(spec.model, spec, objects, revision=spec.revision)
