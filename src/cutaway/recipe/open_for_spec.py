"""Open the models that a spec names, with the spec's precision and device."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil

from cutaway.core.errors import BadSpec
from cutaway.models.chat import with_chat
from cutaway.models.lm import LM
from cutaway.models.load import open_model
from cutaway.models.memory import Workload
from cutaway.models.placement import need_changeable
from cutaway.recipe.objects import Objects, with_unique_names


def open_for_spec(name: str, spec: Any, objects: Objects | None = None, **options: Any) -> LM:
    """Open a model by name; `options` are those of `open_model` and override the spec.

    A model given as an object is used as it is, in the spec's chat format. No checksum is made of
    the weights, since the model never leaves the run.
    """
    fields = ("dtype", "device", "quantise", "offline", "bos")
    where = {field: getattr(spec, field) for field in fields}
    where |= {"workload": Workload(spec.weight_copies, spec.work_bytes), "track_changes": False}
    lm = open_model((objects or {}).get(name, name), **(where | options))
    if spec.changes_weights:
        need_changeable(lm.name, lm.module)
    if getattr(spec, "chat", False):
        given = lm.chat.system if lm.chat else None
        return with_chat(lm, system=spec.system or given, reply=spec.REPLY)
    if lm.chat is not None:
        raise BadSpec(
            f"{lm.name!r} was opened with chat=True: give chat=True here too, or open it without."
        )
    return lm


def open_spec_model(spec: Any, objects: Objects | None = None) -> LM:
    """Open the only model of a spec, at its revision."""
    return open_for_spec(spec.model, spec, objects, revision=spec.revision)


@dataclass(frozen=True)
class SpecModels:
    """The models of a spec, in order and under unique names, each opened once if memory allows.

    Opened models stay in memory while half of the free memory can hold them; the others are opened
    again for each pass over the models. The only model of a spec always stays.
    """

    spec: Any
    objects: Objects = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    """Options of `open_model`."""
    _opened: dict[str, LM] = field(default_factory=dict)

    def __iter__(self) -> Iterator[LM]:
        """One model after the other; BadSpec when a model is given twice."""
        models = (self._open(name) for name in self.spec.model)
        yield from with_unique_names(models, lambda lm: lm.short_id, option="--model")

    def _open(self, name: str) -> LM:
        if name in self._opened:
            return self._opened[name]
        lm = open_for_spec(name, self.spec, self.objects, **self.options)
        if len(self.spec.model) == 1 or self._fits_beside_the_others(lm):
            self._opened[name] = lm
        return lm

    def _fits_beside_the_others(self, lm: LM) -> bool:
        kept = sum(_weight_bytes(one) for one in self._opened.values())
        return bool(kept + _weight_bytes(lm) <= psutil.virtual_memory().available / 2)


def _weight_bytes(lm: LM) -> int:
    return sum(p.numel() * p.element_size() for p in lm.module.parameters())
