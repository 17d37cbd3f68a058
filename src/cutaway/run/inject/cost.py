"""What a sweep will cost, from a few steps that change nothing."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from cutaway.models.lm import LM
from cutaway.run.finetune_cost import Cost
from cutaway.run.finetune_cost import cost_of as finetune_cost
from cutaway.run.inject.cells import cells_of
from cutaway.run.inject.relearn import Course, pupil_of
from cutaway.run.inject.retain import Kept, watched
from cutaway.run.inject.skill import Skill, exact_on_dev, teacher
from cutaway.run.inject.weights import low_rank, own_weights
from cutaway.run.order import order_of
from cutaway.run.plan import Plan, optimizer_of
from cutaway.run.specs.inject import InjectSpec
from cutaway.run.training import take_step

__all__ = ["Cost", "cost_of"]

TRIES = 3
# What learns, its gradients and two of the optimiser; of what it changes, the start and the Fisher.
LEARNING, HELD = 4, 2


@dataclass(frozen=True)
class Trial:
    """A few steps of one rank: what a step takes, how much learns, how much it changes."""

    seconds: float
    weights: int
    bytes: int
    changed: int
    """Bytes of the model's weights that move: with adapters more than what learns."""


def cost_of(
    lm: LM, spec: InjectSpec, skill: Skill, kept: list[Kept], courses: Sequence[Course] = ()
) -> Cost:
    """The cost of all trainings together; regularisers are counted as a quarter of a step.

    Weights, memory and disk are those of the rank that needs most.
    """
    trials = {rank: _try(lm, spec, skill, rank) for rank in spec.lora}
    look = _timed(lambda: (exact_on_dev(lm, skill), watched(lm, kept)))
    cells = Counter(cell.lora for cell in cells_of(spec))
    trainings, looks = cells.total(), 4 + spec.steps // spec.every
    stepping = sum(cells[rank] * 1.25 * spec.steps * one.seconds for rank, one in trials.items())
    memory = max(LEARNING * one.bytes + HELD * one.changed for one in trials.values())
    state = max(LEARNING * one.bytes for one in trials.values())
    return Cost(
        steps=spec.steps * trainings,
        rows=len(skill.train),
        weights=max(one.weights for one in trials.values()),
        seconds=round(
            stepping
            + trainings * looks * look
            + (trainings + spec.repeats) * sum(_lesson(lm, one, spec.seed) for one in courses),
            1,
        ),
        memory_mb=round(memory / 2**20, 1),
        disk_mb=round((trainings * spec.checkpoints * lm.parameters * 4 + state) / 2**20, 1),
    )


def _try(lm: LM, spec: InjectSpec, skill: Skill, rank: int) -> Trial:
    """Some steps on adapters of this rank, or on the weights (0); the model stays as it was."""
    lesson = teacher(lm, skill, spec.regression)
    order = order_of(skill.lessons.rows, spec.batch, spec.seed)
    chosen = low_rank(lm, rank, spec.seed) if rank else own_weights(lm, spec.weights)
    with chosen as trainable:
        params = trainable.params
        for parameter in params.values():
            parameter.requires_grad_(True)
        plan = Plan(steps=TRIES, lr=spec.lr)
        optimizer = optimizer_of(params, plan)

        def loss(step: int) -> dict[str, Tensor]:
            return {"loss": lesson.parts(order(step))["skill"]}

        taken = [
            _timed(lambda step=step: take_step(params, optimizer, loss, plan, step))  # type: ignore[misc]
            for step in range(TRIES)
        ]
        for parameter in params.values():
            parameter.requires_grad_(False)
        return Trial(
            min(taken),
            sum(p.numel() for p in params.values()),
            sum(p.nbytes for p in params.values()),
            sum(w.nbytes for w in trainable.anchor.values()),
        )


def _lesson(lm: LM, course: Course, seed: int) -> float:
    """Seconds of one fine-tune."""
    return finetune_cost(pupil_of(lm, course, seed), course.lesson, course.training).seconds


def _timed(work: Callable[[], Any]) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start
