"""The cost of a fine-tuning, estimated from a few steps that change no weight."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from cutaway.recipe.cost import Estimate
from cutaway.training.finetune_loop import finetune_loss
from cutaway.training.gradients import frozen_others, gradients_enabled
from cutaway.training.options import TrainingSpec
from cutaway.training.task_model import TaskModel
from cutaway.training.task_split import TaskSplit
from cutaway.training.trainable_params import trainable_params


def training_estimate(
    *, steps: int, rows: int, weights: int, seconds: float, memory_mb: float, disk_mb: float
) -> Estimate:
    """The estimate of a verb that trains."""
    return Estimate(
        work=f"{steps:,} steps on {rows:,} rows, {weights:,} trainable weights",
        seconds=round(seconds, 1),
        memory_mb=round(memory_mb, 1),
        disk_mb=round(disk_mb, 1),
        counts={"steps": steps, "rows": rows, "weights": weights},
    )


def estimate_training(task_model: TaskModel, task_split: TaskSplit, spec: TrainingSpec) -> Estimate:
    """The cost of this fine-tuning, from three steps on its own batches."""
    params = trainable_params(task_model, spec)
    loss = finetune_loss(task_model, task_split, params, spec)
    with frozen_others(task_model.module, params), gradients_enabled(params):
        step_seconds = [_timed(lambda i=i: _backward(loss(i), params)) for i in range(3)]  # type: ignore[misc]
    task_model.module.eval()
    sample = task_split.dev[:32]
    row_seconds = _timed(lambda: task_model.predict_proba(sample)) / len(sample)
    evaluated = len(task_split.dev) * (1 + spec.steps // spec.every) + 2 * len(task_split.test)
    size = sum(p.nbytes for p in params.values())
    return training_estimate(
        steps=spec.steps,
        rows=len(task_split.train),
        weights=sum(p.numel() for p in params.values()),
        # The first step also warms up.
        seconds=spec.steps * min(step_seconds[1:]) + evaluated * row_seconds,
        memory_mb=spec.optimizer_copies * size / 2**20,
        disk_mb=(task_model.lm.parameters * 4 + (spec.optimizer_copies - bool(spec.l1)) * size)
        / 2**20,
    )


def _backward(parts: Mapping[str, Tensor], params: Mapping[str, nn.Parameter]) -> None:
    parts["loss"].backward(inputs=list(params.values()))  # type: ignore[no-untyped-call]
    for parameter in params.values():
        parameter.grad = None


def _timed(work: Callable[[], Any]) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start
