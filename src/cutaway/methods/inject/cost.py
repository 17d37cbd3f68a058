"""The cost of a sweep, estimated from a few training steps that change nothing."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from cutaway.core.model_size import ModelSize
from cutaway.methods.inject.cells import InjectRequest, sweep_cells
from cutaway.methods.inject.retain import monitored_loss
from cutaway.methods.inject.skill import dev_exact_match, make_skill_loss
from cutaway.methods.inject.task_forgetting import make_head_model
from cutaway.methods.inject.trainable import chosen_weights, lora_weights
from cutaway.recipe.cost import Estimate
from cutaway.training.batch_order import make_batch_order
from cutaway.training.cost import estimate_training
from cutaway.training.gradients import gradients_enabled
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
    size = ModelSize(lm.parameters, lm.vocab * lm.width)
    # Of a training: weights, best weights, two of the optimizer, and the initial weights.
    state = max(5 * t.bytes for t in trials.values())
    memory = size.bytes(4, spec.weight_copies.on(lm.device))
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
    with _trial_weights(request, rank) as params, gradients_enabled(params):
        # The first step of a warm-up has the rate 0, so that no weight changes.
        plan = TrainingPlan(steps=TRIAL_STEPS, lr=spec.lr, warmup=1)
        optimizer = make_optimizer(params, plan)

        def take(number: int) -> Callable[[], Any]:
            def loss(_: int) -> dict[str, Tensor]:
                return {"loss": skill_loss.parts(order(number))["skill"]}

            return lambda: training_step(params, optimizer, loss, plan, 0)

        seconds = min(_seconds_of(take(number)) for number in range(TRIAL_STEPS))
        return TrialSteps(
            seconds,
            sum(p.numel() for p in params.values()),
            sum(p.nbytes for p in params.values()),
        )


@contextmanager
def _trial_weights(request: InjectRequest, rank: int) -> Iterator[dict[str, nn.Parameter]]:
    """The trained weights: adapters of this rank, or the model's own (0)."""
    if not rank:
        yield chosen_weights(request.lm, request.spec.weights)
        return
    with lora_weights(request.lm, rank, request.spec.seed) as trainable:
        yield trainable.params


def _seconds_of(work: Callable[[], Any]) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start
