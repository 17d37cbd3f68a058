"""How to train: the plan, and the OPTIMIZERS and SCHEDULES it chooses from."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.core.errors import BadSpec
from cutaway.core.lookup import lookup


@dataclass(frozen=True)
class TrainingPlan:
    """How to train: every choice that changes a weight."""

    steps: int
    lr: float
    optimizer: str = "adamw"
    """A row of OPTIMIZERS."""
    schedule: str = "constant"
    """A row of SCHEDULES."""
    warmup: int = 0
    """Steps over which the learning rate rises from 0."""
    weight_decay: float = 0.0
    """Never on biases and norms."""
    momentum: float = 0.0
    """Of sgd."""
    clip: float | None = 1.0
    """The longest gradient, over all parameters."""
    every: int = 100
    """Steps between evaluations; each is a checkpoint too."""
    patience: int | None = None
    """Evaluations without a better score before it stops."""
    seed: int = 0
    """Decides what is random inside a step: dropout."""

    def __post_init__(self) -> None:
        """BadSpec for a value that can't be."""
        lookup(OPTIMIZERS, self.optimizer, kind="optimizer")
        lookup(SCHEDULES, self.schedule, kind="schedule")
        for name, least in {"steps": 1, "every": 1, "warmup": 0, "patience": 1}.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise BadSpec(f"{name} must be at least {least}, got {value!r}.")
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise BadSpec(f"lr must be a number above 0, got {self.lr!r}.")
        if self.clip is not None and not self.clip > 0:
            raise BadSpec(f"clip must be above 0, got {self.clip!r}. Leave it out with None.")


_NO_DECAY = re.compile(r"bias$|norm|(^|[._])ln(_|\.|\d|$)")


def uses_weight_decay(name: str, parameter: Tensor) -> bool:
    """Whether weight decay touches a parameter: biases, norms and other vectors it spares."""
    return parameter.ndim > 1 and not _NO_DECAY.search(name.lower())


def make_optimizer(params: Mapping[str, nn.Parameter], plan: TrainingPlan) -> torch.optim.Optimizer:
    """The plan's optimiser over the parameters, in two groups: with weight decay and without."""
    if not params:
        raise BadSpec("There is no parameter to train. Widen the choice of parameters.")
    decayed = {name for name, parameter in params.items() if uses_weight_decay(name, parameter)}
    with_it = [p for name, p in params.items() if name in decayed]
    without = [p for name, p in params.items() if name not in decayed]
    groups = [
        {"params": with_it, "weight_decay": plan.weight_decay},
        {"params": without, "weight_decay": 0.0},
    ]
    return OPTIMIZERS[plan.optimizer]([group for group in groups if group["params"]], plan)


def _sgd(groups: Any, plan: TrainingPlan) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=plan.lr, momentum=plan.momentum)


def _adamw(groups: Any, plan: TrainingPlan) -> torch.optim.Optimizer:
    # One pass over the weights instead of ten: a third of the time where memory is the limit. On
    # other devices torch chooses for itself.
    home = all(p.device.type == "cpu" for group in groups for p in group["params"])
    return torch.optim.AdamW(groups, lr=plan.lr, fused=True if home else None)


OPTIMIZERS: dict[str, Callable[[Any, TrainingPlan], torch.optim.Optimizer]] = {
    "sgd": _sgd,
    "adamw": _adamw,
}


def _constant(step: int, plan: TrainingPlan) -> float:
    return 1.0


def _linear(step: int, plan: TrainingPlan) -> float:
    return max(0.0, 1.0 - _progress(step, plan))


def _cosine(step: int, plan: TrainingPlan) -> float:
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * _progress(step, plan))))


def _progress(step: int, plan: TrainingPlan) -> float:
    """How far past the warm-up, from 0 to 1."""
    return (step - plan.warmup) / max(1, plan.steps - plan.warmup)


def _with_warmup(
    after: Callable[[int, TrainingPlan], float],
) -> Callable[[int, TrainingPlan], float]:
    """The schedule behind a linear rise from 0, as transformers has it."""
    return lambda step, plan: step / plan.warmup if step < plan.warmup else after(step, plan)


SCHEDULES: dict[str, Callable[[int, TrainingPlan], float]] = {
    "constant": _with_warmup(_constant),
    "linear": _with_warmup(_linear),
    "cosine": _with_warmup(_cosine),
}
"""What the learning rate is multiplied by at a step."""
