"""Patches: sparse changes of weights, with the values before and after."""

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
    """The chosen weights, and their values before and after, by name."""

    mask: Mask
    before: Values
    after: Values

    @property
    def size(self) -> int:
        """The number of weights it changes."""
        return self.mask.size

    @property
    def reverse(self) -> "Patch":
        """The patch that undoes this one."""
        return Patch(self.mask, self.after, self.before)


@dataclass(frozen=True, eq=False)
class StackedPatch:
    """One patch made of several, and the number of weights in conflict."""

    patch: Patch
    conflicts: int


def values_at(params: Params, mask: Mask) -> dict[str, Tensor]:
    """The values of the chosen weights."""
    return {
        name: params[name].detach().take(indices.to(params[name].device))
        for name, indices in mask.indices.items()
    }


def make_patch(base: Params, tuned: Params, mask: Mask, *, scale: float = 1.0) -> Patch:
    """The change from base to tuned at the chosen weights, multiplied by `scale`."""
    before, after = values_at(base, mask), values_at(tuned, mask)
    if scale != 1.0:
        after = {n: before[n] + scale * (after[n] - before[n]) for n in after}
    return Patch(mask, before, after)


def graft_weights(base: Params, tuned: Params, mask: Mask) -> dict[str, Tensor]:
    """A copy of base with the tuned values of the chosen weights."""
    check_same_parameters(base, tuned=tuned)
    copied = {name: value.detach().clone() for name, value in base.items()}
    write_values(copied, mask, values_at(tuned, mask))
    return copied


@torch.no_grad()
def write_values(params: Params, mask: Mask, new: Values) -> None:
    """Write values into the chosen weights, in place."""
    for name, indices in mask.indices.items():
        target = params[name].data
        target.put_(indices.to(target.device), new[name].to(target))


@contextmanager
def patched_weights(params: Params, patch: Patch) -> Iterator[None]:
    """The patch is applied to the weights, and undone bit for bit afterwards."""
    before = values_at(params, patch.mask)
    write_values(params, patch.mask, patch.after)
    try:
        yield
    finally:
        write_values(params, patch.mask, before)


def count_mismatches(params: Params, mask: Mask, expected: Values) -> int:
    """The number of chosen weights that differ from the expected values."""
    actual = values_at(params, mask)
    return sum(int((actual[n] != expected[n].to(actual[n])).sum()) for n in mask.indices)


def need_matching_shapes(params: Params, mask: Mask, shapes: Mapping[str, Sequence[int]]) -> None:
    """Mismatch unless the model has every changed tensor in the expected shape."""
    for name in mask.indices:
        if name not in params:
            raise Mismatch(f"The model has no weight {name!r}: the skill is for another model.")
        if tuple(params[name].shape) != tuple(shapes[name]):
            raise Mismatch(
                f"Weight {name!r} has shape {tuple(params[name].shape)}, the skill's has "
                f"{tuple(shapes[name])}: these are not the same architecture."
            )


def stack_patches(patches: Sequence[Patch], rule: str = "sum") -> StackedPatch:
    """One patch with all changes; a rule merges the changes of weights in several patches.

    All must have been made from the same base: different values before raise Mismatch.
    """
    merge = lookup(CONFLICT_RULES, rule, kind="rule for conflicts")
    if not patches:
        raise BadSpec("Stacking needs at least one skill.")
    mask = union_mask([patch.mask for patch in patches])
    before: dict[str, Tensor] = {}
    after: dict[str, Tensor] = {}
    conflicts = 0
    for name, indices in mask.indices.items():
        present, old, new = _align([p for p in patches if name in p.mask.indices], name, indices)
        before[name] = _shared_before(present, old, name)
        change = torch.where(present, new - before[name], torch.zeros_like(new))
        shared = present.sum(0) > 1
        # A weight in one patch only keeps its exact value: adding the change would round.
        single = new.gather(0, present.int().argmax(0, keepdim=True))[0]
        after[name] = torch.where(shared, before[name] + merge(change, present), single)
        conflicts += int((shared & ((new != single) & present).any(0)).sum())
    return StackedPatch(Patch(mask, before, after), conflicts)


def _align(patches: Sequence[Patch], name: str, indices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Presence, values before and values after as (patch, index) matrices."""
    present = torch.zeros(len(patches), len(indices), dtype=torch.bool)
    old = torch.zeros(len(patches), len(indices), dtype=patches[0].before[name].dtype)
    new = old.clone()
    for row, patch in enumerate(patches):
        at = torch.searchsorted(indices, patch.mask.indices[name])
        present[row, at] = True
        old[row, at], new[row, at] = patch.before[name], patch.after[name]
    return present, old, new


def _shared_before(present: Tensor, old: Tensor, name: str) -> Tensor:
    first = old.gather(0, present.int().argmax(0, keepdim=True))[0]
    if bool(((old != first) & present).any()):
        raise Mismatch(f"The skills have different bases: {name!r} differs.")
    return first


def _sum(change: Tensor, present: Tensor) -> Tensor:
    return change.sum(0)


def _mean(change: Tensor, present: Tensor) -> Tensor:
    return change.sum(0) / present.sum(0)


def _first(change: Tensor, present: Tensor) -> Tensor:
    return change.gather(0, present.int().argmax(0, keepdim=True))[0]


CONFLICT_RULES = {"sum": _sum, "mean": _mean, "first": _first}
