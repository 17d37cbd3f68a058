"""What a sweep will cost, from a few steps that change nothing."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from cutaway.methods.inject.cells import sweep_cells
from cutaway.methods.inject.retain import RetainedSet, monitored_loss
from cutaway.methods.inject.skill import ArithmeticSkill, dev_exact_match, make_skill_loss
from cutaway.methods.inject.spec import InjectSpec
from cutaway.methods.inject.task_forgetting import RetainedTask, make_head_model
from cutaway.methods.inject.trainable import full_weights, lora_weights
from cutaway.models.lm import LM
from cutaway.training.batch_order import make_batch_order
from cutaway.training.cost import TrainingCost
from cutaway.training.cost import estimate_training as finetune_cost
from cutaway.training.loop import training_step
from cutaway.training.plan import TrainingPlan, make_optimizer

__all__ = ["TrainingCost", "sweep_cost"]

TRIAL_STEPS = 3
# What learns, its gradients and two of the optimiser; of what it changes, the start and the Fisher.
TRAINED_COPIES, ANCHOR_COPIES = 4, 2


@dataclass(frozen=True)
class TrialSteps:
    """A few steps of one rank: what a step takes, how much learns, how much it changes."""

    seconds: float
    weights: int
    bytes: int
    changed: int
    """Bytes of the model's weights that move: with adapters more than what learns."""


def sweep_cost(
    lm: LM,
    spec: InjectSpec,
    skill: ArithmeticSkill,
    kept: list[RetainedSet],
    courses: Sequence[RetainedTask] = (),
) -> TrainingCost:
    """The cost of all trainings together; regularisers are counted as a quarter of a step.

    Weights, memory and disk are those of the rank that needs most.
    """
    trials = {rank: _trial_steps(lm, spec, skill, rank) for rank in spec.lora}
    look = _seconds_of(lambda: (dev_exact_match(lm, skill), monitored_loss(lm, kept)))
    cells = Counter(cell.lora for cell in sweep_cells(spec))
    trainings, looks = cells.total(), 4 + spec.steps // spec.every
    stepping = sum(cells[rank] * 1.25 * spec.steps * one.seconds for rank, one in trials.items())
    memory = max(
        TRAINED_COPIES * one.bytes + ANCHOR_COPIES * one.changed for one in trials.values()
    )
    state = max(TRAINED_COPIES * one.bytes for one in trials.values())
    return TrainingCost(
        steps=spec.steps * trainings,
        rows=len(skill.train),
        weights=max(one.weights for one in trials.values()),
        seconds=round(
            stepping
            + trainings * looks * look
            + (trainings + spec.repeats)
            * sum(_finetune_seconds(lm, one, spec.seed) for one in courses),
            1,
        ),
        memory_mb=round(memory / 2**20, 1),
        disk_mb=round((trainings * spec.checkpoints * lm.parameters * 4 + state) / 2**20, 1),
    )


def _trial_steps(lm: LM, spec: InjectSpec, skill: ArithmeticSkill, rank: int) -> TrialSteps:
    """Some steps on adapters of this rank, or on the weights (0); the model stays as it was."""
    lesson = make_skill_loss(lm, skill, spec.regression)
    order = make_batch_order(skill.lessons.rows, spec.batch, spec.seed)
    chosen = lora_weights(lm, rank, spec.seed) if rank else full_weights(lm, spec.weights)
    with chosen as trainable:
        params = trainable.params
        for parameter in params.values():
            parameter.requires_grad_(True)
        plan = TrainingPlan(steps=TRIAL_STEPS, lr=spec.lr)
        optimizer = make_optimizer(params, plan)

        def loss(step: int) -> dict[str, Tensor]:
            return {"loss": lesson.parts(order(step))["skill"]}

        taken = [
            _seconds_of(lambda step=step: training_step(params, optimizer, loss, plan, step))  # type: ignore[misc]
            for step in range(TRIAL_STEPS)
        ]
        for parameter in params.values():
            parameter.requires_grad_(False)
        return TrialSteps(
            min(taken),
            sum(p.numel() for p in params.values()),
            sum(p.nbytes for p in params.values()),
            sum(w.nbytes for w in trainable.anchor.values()),
        )


def _finetune_seconds(lm: LM, course: RetainedTask, seed: int) -> float:
    """Seconds of one fine-tune."""
    return finetune_cost(make_head_model(lm, course, seed), course.lesson, course.training).seconds


def _seconds_of(work: Callable[[], Any]) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start
