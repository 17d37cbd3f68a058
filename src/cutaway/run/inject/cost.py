"""What a sweep will cost, from a few steps that change nothing."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from cutaway.models.lm import LM
from cutaway.run.finetune_cost import Cost
from cutaway.run.finetune_cost import cost_of as finetune_cost
from cutaway.run.inject.cells import cells_of
from cutaway.run.inject.relearn import Course, pupil_of
from cutaway.run.inject.retain import Kept, watched
from cutaway.run.inject.skill import Skill, exact_on_dev, teacher
from cutaway.run.inject.weights import own_weights
from cutaway.run.order import order_of
from cutaway.run.plan import Plan, optimizer_of
from cutaway.run.specs.inject import InjectSpec
from cutaway.run.training import take_step

__all__ = ["Cost", "cost_of"]

TRIES = 3


def cost_of(
    lm: LM, spec: InjectSpec, skill: Skill, kept: list[Kept], courses: Sequence[Course] = ()
) -> Cost:
    """The cost of all trainings together; regularisers are counted as a quarter of a step."""
    lesson = teacher(lm, skill, spec.regression)
    order = order_of(skill.lessons.rows, spec.batch, spec.seed)
    with own_weights(lm, spec.weights) as trainable:
        for parameter in trainable.params.values():
            parameter.requires_grad_(True)
        plan = Plan(steps=TRIES, lr=spec.lr)
        optimizer = optimizer_of(trainable.params, plan)
        taken = [
            _timed(
                lambda step=step: take_step(  # type: ignore[misc]
                    trainable.params,
                    optimizer,
                    lambda s: {"loss": lesson.parts(order(s))["skill"]},
                    plan,
                    step,
                )
            )
            for step in range(TRIES)
        ]
        for parameter in trainable.params.values():
            parameter.requires_grad_(False)
        size = sum(p.nbytes for p in trainable.params.values())
        weights = sum(p.numel() for p in trainable.params.values())
    look = _timed(lambda: (exact_on_dev(lm, skill), watched(lm, kept)))
    trainings, looks = len(cells_of(spec)), 4 + spec.steps // spec.every
    return Cost(
        steps=spec.steps * trainings,
        rows=len(skill.train),
        weights=weights,
        seconds=round(
            trainings * (1.25 * spec.steps * min(taken) + looks * look)
            + (trainings + spec.repeats) * sum(_lesson(lm, one, spec.seed) for one in courses),
            1,
        ),
        memory_mb=round(6 * size / 2**20, 1),
        disk_mb=round((trainings * spec.checkpoints * lm.parameters * 4 + 4 * size) / 2**20, 1),
    )


def _lesson(lm: LM, course: Course, seed: int) -> float:
    """Seconds of one fine-tune."""
    return finetune_cost(pupil_of(lm, course, seed), course.lesson, course.training).seconds


def _timed(work: Callable[[], Any]) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start
