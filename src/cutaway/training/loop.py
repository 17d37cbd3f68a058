"""The training loop that finetune, inject and nextword share: seeded and resumable.

    plan = TrainingPlan(steps=1000, lr=1e-3, optimizer="sgd")
    result = train(params, loss, plan, folder=folder, identity={...}, console=console)

`loss(step)` returns the named parts of the loss of step number `step` (0, 1, ...). The caller
chooses the batch of that step from its own seeded order, so only weights and optimizer state have
to be saved. A run that is killed at any moment and started again ends in the same weights, bit for
bit on a CPU. When started by accelerate, several processes share each step
(`engine/process_group.py`).
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cutaway.console import Advance, Console
from cutaway.core.errors import BadSpec, RunError
from cutaway.core.lookup import lookup
from cutaway.engine.process_group import process_group
from cutaway.store.snapshots import SaveClock
from cutaway.training.checkpoints import TrainingState, load_state, save_state
from cutaway.training.gradients import gradients_enabled
from cutaway.training.plan import SCHEDULES, TrainingPlan, make_optimizer

__all__ = [
    "TrainingPlan",
    "TrainingResult",
    "seeded_step",
    "training_step",
    "train",
]

Parameters = Mapping[str, nn.Parameter]
StepLoss = Callable[[int], Mapping[str, Tensor]]
Evaluate = Callable[[], Mapping[str, float]]
StopRule = Callable[[Mapping[str, float]], str | None]


@dataclass(frozen=True)
class TrainingResult:
    """The result of a training; the parameters hold the best weights."""

    curve: list[dict[str, Any]]
    """One row per evaluation: step (steps done), the mean of each part of the loss since the
    previous row, and the values of `evaluate`. The row of step 0 is before any training."""
    best_step: int
    best: float | None
    """The best score; None without a score, when the last weights count as the best."""
    stopped: str
    """Why it ended: `steps`, `patience`, or the reason returned by `stop`."""
    seconds: float
    """Training time, including evaluations and interrupted runs."""


def train(
    params: Parameters,
    loss: StepLoss,
    plan: TrainingPlan,
    *,
    folder: Path,
    identity: Mapping[str, Any],
    evaluate: Evaluate | None = None,
    score: str | None = None,
    stop: StopRule | None = None,
    project: Callable[[], None] | None = None,
    console: Console | None = None,
) -> TrainingResult:
    """Minimise `loss(step)["loss"]`; `params` hold the weights with the best score afterwards.

    Larger scores are better. Every `plan.every` steps it evaluates and writes a checkpoint to
    `folder`, and between evaluations when one is due (`store/snapshots.py`); a later call with the
    same plan and identity resumes there, one with a different plan is refused. `project` may change
    the parameters after each step (to keep some entries fixed). The start is evaluated but never
    counts as the best.
    """
    run = _TrainingRun(params, plan, make_optimizer(params, plan), score)
    identity = training_identity(identity, plan, params)
    group = process_group()
    saved = load_state(folder, identity, console)
    if saved is not None:
        run.resume(saved)
    # Every process has read the checkpoint before the first process writes the next.
    group.wait()
    clock = SaveClock()

    def save() -> None:
        if group.first:
            began = time.monotonic()
            run.use_saved_best(save_state(folder, identity, run.state()))
            clock.saved(began)

    def save_if_due(*, ahead: float = 0.0, at_end: bool = False) -> None:
        if clock.due(ahead=ahead, at_end=at_end):
            save()

    with (
        gradients_enabled(params),
        (console or Console(quiet=True)).progress("training", plan.steps) as advance,
    ):
        advance(run.step)
        if run.step == 0 and evaluate is not None and saved is None:
            run.evaluate_start(evaluate)
            save_if_due(at_end=True)
        while not run.stopped:
            run.take_steps(loss, project, advance, save_if_due)
            # An evaluation may take minutes: the steps before it are saved first.
            save_if_due(ahead=run.evaluation_seconds)
            run.evaluate(evaluate, stop)
            save()
    run.restore_best()
    return TrainingResult(run.curve, run.best_step, run.best, run.stopped, round(run.seconds, 3))


class _TrainingRun:
    """The state of a running training: its step, its best weights, its time."""

    def __init__(
        self,
        params: Parameters,
        plan: TrainingPlan,
        optimizer: torch.optim.Optimizer,
        score: str | None,
    ) -> None:
        self.params, self.plan, self.optimizer, self.score = params, plan, optimizer, score
        self.step, self.best_step = 0, 0
        self.best: float | None = None
        self.best_weights: dict[str, Tensor] | None = None
        self.curve: list[dict[str, Any]] = []
        self.stopped, self.seconds = "", 0.0
        self.evaluation_seconds = 0.0
        self._since, self._sums = time.monotonic(), dict[str, float]()

    def resume(self, saved: TrainingState) -> None:
        """Continue from a checkpoint."""
        facts = saved.facts
        self.step, self.best_step, self.best = facts["step"], facts["best_step"], facts["best"]
        self.curve, self.stopped, self.seconds = facts["curve"], facts["stopped"], facts["seconds"]
        self._sums = facts.get("sums", {})
        with torch.no_grad():
            for name, parameter in self.params.items():
                parameter.copy_(saved.weights[name])
        for name, state in saved.optimizer.items():
            self.optimizer.state[self.params[name]] = {
                # AdamW keeps its step count on the CPU.
                key: value if key == "step" else value.to(self.params[name].device)
                for key, value in state.items()
            }
        if self.score is not None:
            self.best_weights = saved.best or saved.weights

    @property
    def _best_on_disk(self) -> bool:
        """Whether checkpoints hold the best weights; several processes keep them in memory."""
        return process_group().size == 1

    def use_saved_best(self, views: dict[str, Tensor]) -> None:
        """Take the best weights from the checkpoint that was just written."""
        if self.score is not None and self.best_step and self._best_on_disk:
            self.best_weights = views

    def take_steps(
        self,
        loss: StepLoss,
        project: Callable[[], None] | None,
        advance: Advance,
        save: Callable[[], None],
    ) -> None:
        """Take the steps up to the next evaluation; `save` is called after each of them."""
        first, begun, start = self._last_evaluation, self.step, time.monotonic()
        # From the last evaluation: the step may be that of the next one, which isn't done yet.
        until = min((first // self.plan.every + 1) * self.plan.every, self.plan.steps)
        while self.step < until:
            parts = training_step(self.params, self.optimizer, loss, self.plan, self.step)
            self._sums = {name: self._sums.get(name, 0.0) + value for name, value in parts.items()}
            if project is not None:
                with torch.no_grad():
                    project()
            self.step += 1
            rate = (self.step - begun) / max(time.monotonic() - start, 1e-9)
            mean = self._sums["loss"] / (self.step - first)
            advance(1, f"loss {mean:.4f}, {rate:.3g} steps/s")
            self._count_time()
            save()

    @property
    def _last_evaluation(self) -> int:
        """The step of the evaluation before the current step."""
        return self.curve[-1]["step"] if self.curve else 0

    def evaluate_start(self, evaluate: Evaluate) -> None:
        """The row of the curve before any training."""
        self.curve.append(_curve_row(0, {}, self._timed(evaluate)))

    def _timed(self, evaluate: Evaluate) -> Mapping[str, float]:
        began = time.monotonic()
        values = process_group().broadcast(evaluate)
        self.evaluation_seconds = time.monotonic() - began
        return values

    def evaluate(self, evaluate: Evaluate | None, stop: StopRule | None) -> None:
        """Evaluate, keep the best weights, decide whether to stop."""
        values = dict(self._timed(evaluate)) if evaluate is not None else {}
        steps = self.step - self._last_evaluation
        means = {name: value / steps for name, value in self._sums.items()}
        self.curve.append(_curve_row(self.step, means, values))
        self._sums = {}
        value = None if self.score is None else float(lookup(values, self.score, kind="score"))
        if self.best_step == 0 or value is None or _is_better(value, self.best):
            self.best, self.best_step = value, self.step
            self.best_weights = None
            if value is not None and not self._best_on_disk:
                self.best_weights = {name: p.detach().clone() for name, p in self.params.items()}
        idle = sum(row["step"] > self.best_step for row in self.curve)
        if self.step >= self.plan.steps:
            self.stopped = "steps"
        elif self.plan.patience is not None and idle >= self.plan.patience:
            self.stopped = "patience"
        if stop is not None and (reason := stop(values)):
            self.stopped = reason
        self._count_time()

    def _count_time(self) -> None:
        now = time.monotonic()
        self.seconds, self._since = self.seconds + now - self._since, now

    def state(self) -> TrainingState:
        """The state for a checkpoint; without the best weights while they are the current ones."""
        facts = {
            name: getattr(self, name) for name in ("step", "best_step", "best", "curve", "stopped")
        }
        return TrainingState(
            facts=facts | {"seconds": self.seconds, "sums": self._sums},
            weights=dict(self.params),
            best=None if self.best_step == self.step else self.best_weights,
            optimizer={
                name: {k: v for k, v in state.items() if isinstance(v, Tensor)}
                for name, parameter in self.params.items()
                if (state := self.optimizer.state.get(parameter))
            },
        )

    @torch.no_grad()
    def restore_best(self) -> None:
        """Copy the best weights into the parameters."""
        if self.best_weights is not None:
            for name, parameter in self.params.items():
                parameter.copy_(self.best_weights[name])


def training_step(
    params: Parameters,
    optimizer: torch.optim.Optimizer,
    loss: StepLoss,
    plan: TrainingPlan,
    step: int,
) -> dict[str, float]:
    """One optimizer step; its randomness depends on seed and step only. Returns the loss parts."""
    rate = plan.lr * SCHEDULES[plan.schedule](step, plan)
    for param_group in optimizer.param_groups:
        param_group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
    group = process_group()
    with seeded_step(plan.seed, step, params, group.rank):
        parts = loss(step)
        # Only the inputs: other weights must not accumulate gradients.
        parts["loss"].backward(inputs=list(params.values()))  # type: ignore[no-untyped-call]
    group.average(params)
    values = group.mean({name: float(value.detach()) for name, value in parts.items()})
    if not math.isfinite(values["loss"]):
        raise RunError(
            f"The loss is {values['loss']} at step {step}: training diverged with lr={plan.lr:g} "
            f"({plan.optimizer}). Use a smaller learning rate, or clip the gradient."
        )
    if plan.clip is not None:
        nn.utils.clip_grad_norm_(params.values(), plan.clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return values


@contextmanager
def seeded_step(
    seed: int, step: int, params: Mapping[str, Tensor], rank: int = 0
) -> Iterator[None]:
    """Seed torch from seed and step, and restore its random state afterwards.

    Each process of a group has its own randomness, because it has its own rows.
    """
    source = [seed, step, rank] if rank else [seed, step]
    cards = sorted({p.device.index or 0 for p in params.values() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices=cards):
        torch.manual_seed(int(np.random.SeedSequence(source).generate_state(1)[0]))
        yield


def training_identity(
    identity: Mapping[str, Any], plan: TrainingPlan, params: Mapping[str, Tensor]
) -> dict[str, Any]:
    """The caller's identity, the plan and the shapes: everything that determines the result."""
    shapes = {f"shape of {name}": list(value.shape) for name, value in params.items()}
    return {**identity, **asdict(plan), **shapes}


def _curve_row(
    step: int, means: Mapping[str, float], scores: Mapping[str, float]
) -> dict[str, Any]:
    """A row of the curve; a value that isn't finite is None, as in JSON."""
    if both := set(means) & set(scores):
        raise BadSpec(
            f"{sorted(both)[0]!r} is both a part of the loss and an evaluation: rename one."
        )
    values = {name: float(value) for name, value in {**means, **scores}.items()}
    kept = {name: value if math.isfinite(value) else None for name, value in values.items()}
    return {"step": step, **kept}


def _is_better(value: float, best: float | None) -> bool:
    """Strictly better, so the first of equal scores is kept; any value is better than NaN."""
    return best is None or math.isnan(best) or value > best
