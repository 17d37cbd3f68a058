"""The cost of a sweep, estimated from a few training steps that change nothing."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from cutaway.methods.inject.cells import InjectRequest, sweep_cells
from cutaway.methods.inject.retain import monitored_loss
from cutaway.methods.inject.skill import dev_exact_match, make_skill_loss
from cutaway.methods.inject.spec import ANCHOR_COPIES, TRAINED_COPIES
from cutaway.methods.inject.task_forgetting import make_head_model
from cutaway.methods.inject.trainable import full_weights, lora_weights
from cutaway.recipe.cost import Estimate
from cutaway.training.batch_order import make_batch_order
from cutaway.training.cost import estimate_training
from cutaway.training.loop import training_step
from cutaway.training.plan import TrainingPlan, make_optimizer

TRIAL_STEPS = 3
# A step with a regulariser takes about this many times as long as a plain one.
REGULARISER_FACTOR = 1.25


@dataclass(frozen=True)
class TrialSteps:
    """Time and size of a few training steps at one LoRA rank."""

    seconds: float
    weights: int
    bytes: int
    changed: int
    """Bytes of the model's weights that change: with adapters more than what is trained."""


def sweep_cost(request: InjectRequest) -> Estimate:
    """The cost of all trainings; memory and disk are those of the rank that needs most."""
    spec, lm = request.spec, request.lm
    trials = {rank: _trial_steps(request, rank) for rank in spec.lora}
    evaluation = _seconds_of(
        lambda: (dev_exact_match(lm, request.skill), monitored_loss(lm, request.retained))
    )
    per_rank = Counter(cell.lora for cell in sweep_cells(spec))
    trainings, evaluations = per_rank.total(), 4 + spec.steps // spec.every
    finetuning = sum(
        estimate_training(make_head_model(lm, task, spec.seed), task.split, task.training).seconds
        for task in request.tasks
    )
    seconds = (
        sum(per_rank[r] * REGULARISER_FACTOR * spec.steps * t.seconds for r, t in trials.items())
        + trainings * evaluations * evaluation
        + (trainings + spec.repeats) * finetuning
    )
    state = max(TRAINED_COPIES * t.bytes for t in trials.values())
    memory = max(TRAINED_COPIES * t.bytes + ANCHOR_COPIES * t.changed for t in trials.values())
    counts = {
        "steps": spec.steps * trainings,
        "rows": len(request.skill.train),
        "weights": max(t.weights for t in trials.values()),
    }
    return Estimate(
        "{steps:,} steps on {rows:,} questions, {weights:,} weights trained".format(**counts),
        seconds=round(seconds, 1),
        memory_mb=round(memory / 2**20, 1),
        disk_mb=round((trainings * spec.checkpoints * lm.parameters * 4 + state) / 2**20, 1),
        counts=counts,
    )


def _trial_steps(request: InjectRequest, rank: int) -> TrialSteps:
    """Some steps on adapters of this rank, or on the weights (0); the weights are restored."""
    spec, lm, skill = request.spec, request.lm, request.skill
    skill_loss = make_skill_loss(lm, skill, spec.regression)
    order = make_batch_order(skill.train_examples.rows, spec.batch, spec.seed)
    with lora_weights(lm, rank, spec.seed) if rank else full_weights(lm, spec.weights) as trainable:
        params = trainable.params
        for parameter in params.values():
            parameter.requires_grad_(True)
        plan = TrainingPlan(steps=TRIAL_STEPS, lr=spec.lr)
        optimizer = make_optimizer(params, plan)

        def loss(step: int) -> dict[str, Tensor]:
            return {"loss": skill_loss.parts(order(step))["skill"]}

        def take(step: int) -> Callable[[], Any]:
            return lambda: training_step(params, optimizer, loss, plan, step)

        seconds = min(_seconds_of(take(step)) for step in range(TRIAL_STEPS))
        for parameter in params.values():
            parameter.requires_grad_(False)
        return TrialSteps(
            seconds,
            sum(p.numel() for p in params.values()),
            sum(p.nbytes for p in params.values()),
            sum(w.nbytes for w in trainable.anchor.values()),
        )


def _seconds_of(work: Callable[[], Any]) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start
