"""What a fine-tuning will cost, from a few steps that change nothing."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from cutaway.run.lesson import Lesson
from cutaway.run.pupil import Pupil
from cutaway.run.specs.finetune import Training
from cutaway.run.teaching import loss_of, trained_params
from cutaway.run.training import learning, others_at_rest


@dataclass(frozen=True)
class Cost:
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


def cost_of(pupil: Pupil, lesson: Lesson, spec: Training) -> Cost:
    """The cost of teaching this lesson, from three steps on its own batches."""
    params = trained_params(pupil, spec)
    loss, tries = loss_of(pupil, lesson, params, spec), 3
    with others_at_rest(pupil.module, params), learning(params):
        seconds = [_timed(lambda step=step: _backward(loss(step), params)) for step in range(tries)]  # type: ignore[misc]
    pupil.module.eval()
    some = lesson.dev[:32]
    look = _timed(lambda: pupil.answers(some)) / len(some)
    looked = len(lesson.dev) * (1 + spec.steps // spec.every) + 2 * len(lesson.test)
    size = sum(p.nbytes for p in params.values())
    states = 3 if spec.optimizer == "adamw" else 1
    return Cost(
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
