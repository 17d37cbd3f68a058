"""The precision in which a base and its tuned model are compared.

Weights that differ only because one of two checkpoints was rounded have not moved. So both are
rounded to the coarser of the two precisions in which they are stored, and a weight has moved if it
still differs. An adapter changes every entry of a matrix, many of them by less than a merged model
keeps, which is usually stored in bfloat16: that is the finest precision for an adapter.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from cutaway.methods.graft.maths.select import Params
from cutaway.models.load import split_adapter
from cutaway.models.precision import DIGITS, coarsest, stored_precision

ADAPTER_PRECISION = "bfloat16"


@dataclass(frozen=True)
class PairPrecision:
    """How both checkpoints are stored, and in which precision they are compared."""

    base: str
    tuned: str
    """Its precision, or `an adapter`."""
    compared: str
    live: str = "float32"
    """The precision in which both are open."""

    @property
    def rounds(self) -> bool:
        """Whether weights are rounded before they are compared."""
        return DIGITS[self.compared] < DIGITS[self.live]

    def facts(self) -> dict[str, str]:
        """How they are stored and compared, for summaries and skill files."""
        return {name: value for name, value in asdict(self).items() if name != "live"}

    def moved_values(self, base: Tensor, tuned: Tensor) -> Tensor:
        """The tuned values of weights that moved, and the base's of all others.

        A skill is attached to the base as it is stored, so its values are rounded to that.
        """
        if not self.rounds:
            return tuned
        dtype, stored = getattr(torch, self.compared), getattr(torch, self.base)
        moved = base.to(dtype) != tuned.to(dtype)
        return torch.where(moved, tuned.to(stored).to(base.dtype), base)


def pair_precision(spec: Any, live: str, objects: Mapping[str, Any]) -> PairPrecision:
    """The precisions of the two models that a spec names; objects have that of their weights."""
    base = _stored(spec.base, spec.offline, objects)
    tuned = _stored(spec.tuned, spec.offline, objects)
    wanted = [spec.precision] if spec.precision != "auto" else [*base, *tuned]
    described = coarsest(base), "an adapter" if len(tuned) > 1 else tuned[0]
    return PairPrecision(*described, compared=coarsest([*wanted, live]), live=live)


def _stored(name: str, offline: bool, objects: Mapping[str, Any]) -> list[str]:
    """The precision of a checkpoint, and that of merged models if it has an adapter."""
    if name in objects:
        return [str(objects[name].dtype)]
    base, adapter = split_adapter(name, None)
    stored = stored_precision(base, offline=offline)
    return [stored] if adapter is None else [stored, ADAPTER_PRECISION]


def count_moved(base: Params, tuned: Params) -> int:
    """The number of weights that differ."""
    return sum(int((base[name] != tuned[name]).sum()) for name in base)
