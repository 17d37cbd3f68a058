"""A sparse change of weights: where, what was there, what is there now."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.core.errors import BadSpec, Mismatch
from cutaway.core.lookup import lookup
from cutaway.core.params import check_same_parameters
from cutaway.methods.graft.maths.select import Mask, Params, union_mask

Values = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Patch:
    """Places, the values before and the values after, by name."""

    mask: Mask
    before: Values
    after: Values

    @property
    def size(self) -> int:
        """How many weights it changes."""
        return self.mask.size


@dataclass(frozen=True, eq=False)
class StackedPatch:
    """One patch made of several, and how many weights they disagreed about."""

    patch: Patch
    conflicts: int


def values_at(params: Params, mask: Mask) -> dict[str, Tensor]:
    """What stands at the chosen places."""
    return {
        name: params[name].detach().take(places.to(params[name].device))
        for name, places in mask.places.items()
    }


def make_patch(base: Params, tuned: Params, mask: Mask, *, scale: float = 1.0) -> Patch:
    """The change from base to tuned at the chosen places; `scale` stretches it."""
    before, after = values_at(base, mask), values_at(tuned, mask)
    if scale != 1.0:
        after = {n: before[n] + scale * (after[n] - before[n]) for n in after}
    return Patch(mask, before, after)


def graft_weights(base: Params, tuned: Params, mask: Mask) -> dict[str, Tensor]:
    """base with tuned's values at the chosen places: nothing chosen is the base, all is tuned."""
    check_same_parameters(base, tuned=tuned)
    copied = {name: value.detach().clone() for name, value in base.items()}
    write_values(copied, mask, values_at(tuned, mask))
    return copied


@torch.no_grad()
def write_values(params: Params, mask: Mask, new: Values) -> None:
    """Put values at the chosen places, in place."""
    for name, places in mask.places.items():
        target = params[name].data
        target.put_(places.to(target.device), new[name].to(target))


@contextmanager
def patched_weights(params: Params, patch: Patch) -> Iterator[None]:
    """The weights with the patch on; as they were afterwards, bit for bit."""
    kept = values_at(params, patch.mask)
    write_values(params, patch.mask, patch.after)
    try:
        yield
    finally:
        write_values(params, patch.mask, kept)


def count_mismatches(params: Params, mask: Mask, expected: Values) -> int:
    """At how many of the chosen places something else stands than expected."""
    found = values_at(params, mask)
    return sum(int((found[n] != expected[n].to(found[n])).sum()) for n in mask.places)


def need_matching_shapes(params: Params, mask: Mask, shapes: Mapping[str, Sequence[int]]) -> None:
    """Mismatch unless every changed tensor is there in the shape the patch was made for."""
    for name in mask.places:
        if name not in params:
            raise Mismatch(f"The model has no weight {name!r}: this skill is for another model.")
        if tuple(params[name].shape) != tuple(shapes[name]):
            raise Mismatch(
                f"Weight {name!r} has shape {tuple(params[name].shape)}, the skill's has "
                f"{tuple(shapes[name])}: these are not the same architecture."
            )


def stack_patches(patches: Sequence[Patch], rule: str = "sum") -> StackedPatch:
    """One patch with every change; where several change a weight, the rule decides.

    All must have been made from the same base: where two have different values before, Mismatch.
    """
    merge = lookup(CONFLICT_RULES, rule, kind="rule for conflicts")
    if not patches:
        raise BadSpec("There is nothing to stack: give at least one skill.")
    mask = union_mask([patch.mask for patch in patches])
    before: dict[str, Tensor] = {}
    after: dict[str, Tensor] = {}
    conflicts = 0
    for name, places in mask.places.items():
        there, old, new = _align([p for p in patches if name in p.mask.places], name, places)
        before[name] = _shared_before(there, old, name)
        change = torch.where(there, new - before[name], torch.zeros_like(new))
        apart = there.sum(0) > 1
        # Where one patch alone speaks, its own value is taken: adding would round.
        alone = new.gather(0, there.int().argmax(0, keepdim=True))[0]
        after[name] = torch.where(apart, before[name] + merge(change, there), alone)
        conflicts += int((apart & ((new != alone) & there).any(0)).sum())
    return StackedPatch(Patch(mask, before, after), conflicts)


def _align(patches: Sequence[Patch], name: str, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Which patch has which place, and the values before and after there: (patch, place) each."""
    there = torch.zeros(len(patches), len(places), dtype=torch.bool)
    old = torch.zeros(len(patches), len(places), dtype=patches[0].before[name].dtype)
    new = old.clone()
    for row, patch in enumerate(patches):
        at = torch.searchsorted(places, patch.mask.places[name])
        there[row, at] = True
        old[row, at], new[row, at] = patch.before[name], patch.after[name]
    return there, old, new


def _shared_before(there: Tensor, old: Tensor, name: str) -> Tensor:
    first = old.gather(0, there.int().argmax(0, keepdim=True))[0]
    if bool(((old != first) & there).any()):
        raise Mismatch(f"The skills were made from different bases: {name!r} differs before them.")
    return first


def _sum(change: Tensor, there: Tensor) -> Tensor:
    return change.sum(0)


def _mean(change: Tensor, there: Tensor) -> Tensor:
    return change.sum(0) / there.sum(0)


def _first(change: Tensor, there: Tensor) -> Tensor:
    return change.gather(0, there.int().argmax(0, keepdim=True))[0]


CONFLICT_RULES = {"sum": _sum, "mean": _mean, "first": _first}
