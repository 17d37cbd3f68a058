"""What a fine-tuning will cost, from a few steps that change nothing."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from cutaway.training.finetune_loop import finetune_loss, trainable_params
from cutaway.training.loop import frozen_others, gradients_enabled
from cutaway.training.options import TrainingSpec
from cutaway.training.task_model import TaskModel
from cutaway.training.task_split import TaskSplit


@dataclass(frozen=True)
class TrainingCost:
    """What a fine-tuning will take, told before it starts."""

    steps: int
    rows: int
    weights: int
    seconds: float
    memory_mb: float
    disk_mb: float

    def sentence(self) -> str:
        """The estimate for people."""
        return (
            f"{self.steps:,} steps on {self.rows:,} rows, {self.weights:,} weights learn: about "
            f"{self.seconds:,.0f} s, {self.memory_mb:,.0f} MB of memory besides the model, "
            f"{self.disk_mb:,.0f} MB on disk."
        )

    def plain(self) -> dict[str, Any]:
        """The estimate as JSON-ready values."""
        return asdict(self)


def estimate_training(pupil: TaskModel, lesson: TaskSplit, spec: TrainingSpec) -> TrainingCost:
    """The cost of teaching this lesson, from three steps on its own batches."""
    params = trainable_params(pupil, spec)
    loss, tries = finetune_loss(pupil, lesson, params, spec), 3
    with frozen_others(pupil.module, params), gradients_enabled(params):
        seconds = [_timed(lambda step=step: _backward(loss(step), params)) for step in range(tries)]  # type: ignore[misc]
    pupil.module.eval()
    some = lesson.dev[:32]
    look = _timed(lambda: pupil.predict_proba(some)) / len(some)
    looked = len(lesson.dev) * (1 + spec.steps // spec.every) + 2 * len(lesson.test)
    size = sum(p.nbytes for p in params.values())
    states = 3 if spec.optimizer == "adamw" else 1
    return TrainingCost(
        steps=spec.steps,
        rows=len(lesson.train),
        weights=sum(p.numel() for p in params.values()),
        seconds=round(spec.steps * min(seconds[1:]) + looked * look, 1),
        memory_mb=round((1 + states + bool(spec.l1)) * size / 2**20, 1),
        disk_mb=round((pupil.lm.parameters * 4 + (1 + states) * size) / 2**20, 1),
    )


def _backward(parts: Mapping[str, Tensor], params: Mapping[str, nn.Parameter]) -> None:
    parts["loss"].backward(inputs=list(params.values()))  # type: ignore[no-untyped-call]
    for parameter in params.values():
        parameter.grad = None


def _timed(work: Callable[[], Any]) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start
