"""Snapshots of what `graft` computes for long: a mask that is being learned, gradient sums."""

import math
from collections.abc import Callable, Mapping

from torch import Tensor

from cutaway.methods.graft.maths.masks import GradientSums
from cutaway.methods.graft.maths.select import Mask, Params
from cutaway.methods.graft.maths.soft_mask import MaskState
from cutaway.store.snapshots import Snapshots, saved_tensors


def mask_keeper(snapshots: Snapshots, last: int) -> Callable[[MaskState], None]:
    """A function that saves the state of learning when it is time; `last` is the last step."""

    def keep(state: MaskState) -> None:
        if snapshots.due(at_end=state.step == last):
            score, mask, step = state.best
            tensors: dict[str, Tensor] = {
                **_named("logits", state.logits),
                **_named("first", {name: pair[0] for name, pair in state.moments.items()}),
                **_named("second", {name: pair[1] for name, pair in state.moments.items()}),
                **_named("best", mask.indices),
            }
            # A skill file has the weights in the order of these names.
            names = {"names": [*state.logits], "best": [*mask.indices]}
            facts = {"step": state.step, "score": score, "best_step": step, **names}
            snapshots.save(state.step, tensors, facts | {"curve": list(state.curve)})

    return keep


def saved_mask(snapshots: Snapshots) -> MaskState | None:
    """The newest state of learning."""
    saved = snapshots.load()
    if saved is None:
        return None
    first, second = saved_tensors(saved, "first"), saved_tensors(saved, "second")
    meta, best, logits = saved.meta, saved_tensors(saved, "best"), saved_tensors(saved, "logits")
    mask = Mask({name: best[name] for name in meta["best"]})
    return MaskState(
        int(meta["step"]),
        {name: logits[name] for name in meta["names"]},
        {name: (first[name], second[name]) for name in meta["names"] if name in first},
        (_number(meta["score"]), mask, int(meta["best_step"])),
        [{name: _number(value) for name, value in row.items()} for row in meta["curve"]],
    )


def sums_keeper(snapshots: Snapshots, last: int) -> Callable[[GradientSums], None]:
    """A function that saves gradient sums when it is time; `last` is the number of examples."""

    def keep(sums: GradientSums) -> None:
        if snapshots.due(at_end=sums.examples == last):
            tensors = {**_named("sum", sums.sum), **_named("square", sums.square)}
            snapshots.save(sums.examples, tensors, {"examples": sums.examples})

    return keep


def saved_sums(snapshots: Snapshots, like: Params) -> GradientSums | None:
    """The newest gradient sums, on the devices of `like`."""
    saved = snapshots.load()
    if saved is None:
        return None
    parts = [
        {name: value.to(like[name].device) for name, value in saved_tensors(saved, which).items()}
        for which in ("sum", "square")
    ]
    return GradientSums(parts[0], parts[1], int(saved.meta["examples"]))


def _named(prefix: str, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": value for name, value in values.items()}


def _number(value: int | float | None) -> int | float:
    """NaN is saved as null."""
    return math.nan if value is None else value
