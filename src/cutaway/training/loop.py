"""The training loop that finetune, inject and nextword share: seeded, kept, taken up again.

    plan = Plan(steps=1000, lr=1e-3, optimizer="sgd")
    trained = train(params, loss, plan, folder=folder, identity={...}, console=console)

`loss(step)` gives the named parts of step number `step` (0, 1, ...); the caller draws the batch
of that step from its own seeded order, so that nothing but weights and optimiser has to be kept.
A run killed at any moment and started again ends in the same weights, bit for bit on a CPU.
Started by accelerate, several processes take the steps together (`training/distributed.py`).
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
from cutaway.training.checkpoints import TrainingState, load_state, save_state
from cutaway.training.plan import SCHEDULES, TrainingPlan, make_optimizer

__all__ = [
    "TrainingPlan",
    "TrainingResult",
    "gradients_enabled",
    "frozen_others",
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
    """What training came to; the best weights are in the parameters."""

    curve: list[dict[str, Any]]
    """One row per evaluation: step (steps done), the mean of each part of the loss since the
    row before, and what `evaluate` gave. The row of step 0 is the start, before any training."""
    best_step: int
    best: float | None
    """The best score; None where there was no score, and the last weights count as best."""
    stopped: str
    """`steps`, `patience`, or what `stop` said."""
    seconds: float
    """Time spent training, evaluations and interrupted runs included."""


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
    """Minimises `loss(step)["loss"]` and leaves the weights of the best score in `params`.

    Larger scores are better. Every `plan.every` steps it evaluates and writes a checkpoint into
    `folder`; a later call with the same plan and identity goes on from there, one with another
    is refused. `project` may change the parameters after each step (to hold some entries still).
    The start is evaluated but never the best: what comes back was trained.
    """
    run = _TrainingRun(params, plan, make_optimizer(params, plan), score)
    identity = training_identity(identity, plan, params)
    together = process_group()
    kept = load_state(folder, identity, console)
    if kept is not None:
        run.resume(kept)
    # All have read what is kept before the first process writes the next.
    together.wait()
    with (
        gradients_enabled(params),
        (console or Console(quiet=True)).progress("training", plan.steps) as advance,
    ):
        advance(run.step)
        if run.step == 0 and evaluate is not None and kept is None:
            run.curve.append(_curve_row(0, {}, together.broadcast(evaluate)))
        while not run.stopped:
            run.go(loss, project, advance)
            run.look(evaluate, stop)
            if together.first:
                save_state(folder, identity, run.state())
    run.put_best()
    return TrainingResult(run.curve, run.best_step, run.best, run.stopped, round(run.spent, 3))


class _TrainingRun:
    """A training under way: where it is, what was best, how long it took."""

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
        self.stopped, self.spent = "", 0.0
        self._since, self._means = time.monotonic(), dict[str, float]()

    def resume(self, kept: TrainingState) -> None:
        """Go on from a checkpoint."""
        facts = kept.facts
        self.step, self.best_step, self.best = facts["step"], facts["best_step"], facts["best"]
        self.curve, self.stopped, self.spent = facts["curve"], facts["stopped"], facts["seconds"]
        with torch.no_grad():
            for name, parameter in self.params.items():
                parameter.copy_(kept.weights[name])
        for name, state in kept.optimizer.items():
            self.optimizer.state[self.params[name]] = {
                # AdamW counts its steps on the CPU, whatever the device.
                key: value if key == "step" else value.to(self.params[name].device)
                for key, value in state.items()
            }
        if self.score is not None:
            self.best_weights = kept.best or kept.weights

    def go(self, loss: StepLoss, project: Callable[[], None] | None, advance: Advance) -> None:
        """Take the steps up to the next evaluation."""
        until = min((self.step // self.plan.every + 1) * self.plan.every, self.plan.steps)
        sums: dict[str, float] = {}
        first, start = self.step, time.monotonic()
        while self.step < until:
            parts = training_step(self.params, self.optimizer, loss, self.plan, self.step)
            sums = {name: sums.get(name, 0.0) + value for name, value in parts.items()}
            if project is not None:
                with torch.no_grad():
                    project()
            self.step += 1
            done = self.step - first
            rate = done / max(time.monotonic() - start, 1e-9)
            advance(1, f"loss {sums['loss'] / done:.4f}, {rate:.3g} steps/s")
        self._means = {name: value / (until - first) for name, value in sums.items()}

    def look(self, evaluate: Evaluate | None, stop: StopRule | None) -> None:
        """Evaluate, remember the best, decide whether to go on."""
        found = dict(process_group().broadcast(evaluate)) if evaluate is not None else {}
        self.curve.append(_curve_row(self.step, self._means, found))
        value = self._score(found)
        if self.best_step == 0 or value is None or _is_better(value, self.best):
            self.best, self.best_step = value, self.step
            self.best_weights = None if value is None else _copies(self.params)
        idle = sum(row["step"] > self.best_step for row in self.curve)
        if self.step >= self.plan.steps:
            self.stopped = "steps"
        elif self.plan.patience is not None and idle >= self.plan.patience:
            self.stopped = "patience"
        if stop is not None and (reason := stop(found)):
            self.stopped = reason
        now = time.monotonic()
        self.spent, self._since = self.spent + now - self._since, now

    def _score(self, found: Mapping[str, float]) -> float | None:
        if self.score is None:
            return None
        return float(lookup(dict(found), self.score, kind="score"))

    def state(self) -> TrainingState:
        """What a checkpoint keeps. The best weights are left out while they are the current."""
        facts = {
            name: getattr(self, name) for name in ("step", "best_step", "best", "curve", "stopped")
        }
        return TrainingState(
            facts=facts | {"seconds": self.spent},
            weights=dict(self.params),
            best=None if self.best_step == self.step else self.best_weights,
            optimizer={
                name: {k: v for k, v in state.items() if isinstance(v, Tensor)}
                for name, parameter in self.params.items()
                if (state := self.optimizer.state.get(parameter))
            },
        )

    @torch.no_grad()
    def put_best(self) -> None:
        """The parameters hold the best weights."""
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
    """One step; the parts of its loss. What is random in it depends on seed and step only."""
    rate = plan.lr * SCHEDULES[plan.schedule](step, plan)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
    together = process_group()
    with seeded_step(plan.seed, step, params, together.rank):
        parts = loss(step)
        # Only these: weights that rest must not gather gradients, nor memory for them.
        parts["loss"].backward(inputs=list(params.values()))  # type: ignore[no-untyped-call]
    together.average(params)
    values = together.mean({name: float(value.detach()) for name, value in parts.items()})
    if not math.isfinite(values["loss"]):
        raise RunError(
            f"The loss is {values['loss']} at step {step}: training diverged with lr={plan.lr:g} "
            f"({plan.optimizer}). Lower the learning rate, or clip the gradient."
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
    """Torch's randomness decided by seed and step, and given back as it was.

    In a team each process has its own: their rows are others, so must be what is dropped out.
    """
    source = [seed, step, rank] if rank else [seed, step]
    cards = sorted({p.device.index or 0 for p in params.values() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices=cards):
        torch.manual_seed(int(np.random.SeedSequence(source).generate_state(1)[0]))
        yield


@contextmanager
def gradients_enabled(params: Parameters) -> Iterator[None]:
    """The parameters take gradients for a while."""
    before = {name: parameter.requires_grad for name, parameter in params.items()}
    try:
        for parameter in params.values():
            parameter.requires_grad_(True)
        yield
    finally:
        for name, parameter in params.items():
            parameter.requires_grad_(before[name])
            parameter.grad = None


@contextmanager
def frozen_others(module: nn.Module, params: Mapping[str, Tensor]) -> Iterator[None]:
    """The module's other parameters take no gradient for a while: nothing is kept for them."""
    ours = {id(parameter) for parameter in params.values()}
    others = [p for p in module.parameters() if p.requires_grad and id(p) not in ours]
    try:
        for parameter in others:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in others:
            parameter.requires_grad_(True)


def training_identity(
    identity: Mapping[str, Any], plan: TrainingPlan, params: Mapping[str, Tensor]
) -> dict[str, Any]:
    """The caller's identity, the plan and the shapes: all that decides where training ends."""
    shapes = {f"shape of {name}": list(value.shape) for name, value in params.items()}
    return {**identity, **asdict(plan), **shapes}


def _curve_row(step: int, means: Mapping[str, float], found: Mapping[str, float]) -> dict[str, Any]:
    """A row of the curve; a value that is no number is None, as it comes back from a file."""
    if both := set(means) & set(found):
        raise BadSpec(f"{sorted(both)[0]!r} is a part of the loss and an evaluation: rename one.")
    values = {name: float(value) for name, value in {**means, **found}.items()}
    kept = {name: value if math.isfinite(value) else None for name, value in values.items()}
    return {"step": step, **kept}


def _is_better(value: float, best: float | None) -> bool:
    """Strictly better: of equals the first is kept. Anything beats a score that is no number."""
    return best is None or math.isnan(best) or value > best


def _copies(params: Parameters) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in params.items()}
