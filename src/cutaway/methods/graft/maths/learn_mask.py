"""The loop that learns a mask: steps on the soft mask, evaluations of the rounded one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from cutaway.methods.graft.maths.patch import values_at, write_values
from cutaway.methods.graft.maths.select import Mask, Params
from cutaway.methods.graft.maths.soft_mask import (
    LiveParams,
    Loss,
    MaskPlan,
    MaskState,
    SoftMask,
    assign_weights,
    gradients_enabled,
)


@dataclass(frozen=True, eq=False)
class LearnedMask:
    """The best mask of all evaluations, its score, and the learning curve."""

    mask: Mask
    score: float
    step: int
    """The step of its evaluation; 0 is the starting mask."""
    curve: tuple[dict[str, int | float], ...]
    logits: Params = field(repr=False)
    """z after the last step, which ranks all weights."""


def learn_mask(
    params: LiveParams,
    base: Params,
    tuned: Params,
    start: Mask,
    losses: Callable[[int], Sequence[Loss]],
    evaluate: Callable[[], float],
    plan: MaskPlan,
    *,
    rng: torch.Generator,
    report: Callable[[int, float], None] = lambda step, loss: None,
    saved: MaskState | None = None,
    keep: Callable[[MaskState], None] = lambda state: None,
) -> LearnedMask:
    """The best mask of the starting mask's size among those that are evaluated.

    `losses(step)` are the terms of that step's loss, `evaluate()` is the score (higher is better)
    of the current parameters. The parameters are those of the base again afterwards. `keep` gets
    the state after each step; learning goes on from `saved` with the same results.
    """
    soft = SoftMask(params, base, tuned, start, rng=rng)
    best: tuple[float, Mask, int] = (-float("inf"), start, 0)
    curve: list[dict[str, int | float]] = []
    with gradients_enabled(params, base):
        if saved is not None:
            soft.resume(saved)
            best, curve = saved.best, [dict(row) for row in saved.curve]
        for step in range(0 if saved is None else saved.step + 1, plan.steps + 1):
            loss = soft.step(losses(step), plan) if step else float("nan")
            evaluating = step % plan.every == 0 or step == plan.steps
            if evaluating:
                mask = soft.rounded(start.size) if step else start
                score = score_mask(params, base, tuned, mask, evaluate)
                best = max(best, (score, mask, step), key=lambda one: one[0])
                curve.append({"step": step, "loss": loss, "score": score, "ones": soft.ones()})
            if evaluating or plan.budget:
                soft.write(start.size if plan.budget else None)
            report(step, loss)
            keep(MaskState(step, soft.logits, soft.moments, best, curve))
    score, mask, step = best
    return LearnedMask(mask, score, step, tuple(curve), soft.logits)


def score_mask(
    params: LiveParams, base: Params, tuned: Params, mask: Mask, evaluate: Callable[[], float]
) -> float:
    """The score of the base with the mask's weights tuned."""
    assign_weights(params, base)
    write_values(params, mask, values_at(tuned, mask))
    return evaluate()
