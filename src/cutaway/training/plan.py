"""The training plan, and the optimizers and learning-rate schedules it chooses from."""

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
    """Every training option that changes a weight."""

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
    """Momentum of sgd."""
    clip: float | None = 1.0
    """Maximum gradient norm, over all parameters."""
    every: int = 100
    """Steps between evaluations; each also writes a checkpoint."""
    patience: int | None = None
    """Evaluations without a better score before it stops."""
    seed: int = 0
    """Seed of the randomness inside a step: dropout."""

    def __post_init__(self) -> None:
        """BadSpec for an invalid value."""
        lookup(OPTIMIZERS, self.optimizer, kind="optimizer")
        lookup(SCHEDULES, self.schedule, kind="schedule")
        for name, least in {"steps": 1, "every": 1, "warmup": 0, "patience": 1}.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise BadSpec(f"{name} must be at least {least}, got {value!r}.")
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise BadSpec(f"lr must be a number above 0, got {self.lr!r}.")
        if self.clip is not None and not self.clip > 0:
            raise BadSpec(f"clip must be above 0, got {self.clip!r}. None disables it.")


_NO_DECAY = re.compile(r"bias$|norm|(^|[._])ln(_|\.|\d|$)")


def uses_weight_decay(name: str, parameter: Tensor) -> bool:
    """Whether weight decay applies: not to biases, norms and other vectors."""
    return parameter.ndim > 1 and not _NO_DECAY.search(name.lower())


def make_optimizer(params: Mapping[str, nn.Parameter], plan: TrainingPlan) -> torch.optim.Optimizer:
    """The plan's optimizer, with one parameter group with weight decay and one without."""
    if not params:
        raise BadSpec("There is no parameter to train: choose more of them.")
    groups = [
        {"params": [p for name, p in params.items() if uses_weight_decay(name, p) == decayed],
         "weight_decay": plan.weight_decay if decayed else 0.0}
        for decayed in (True, False)
    ]  # fmt: skip
    return OPTIMIZERS[plan.optimizer]([group for group in groups if group["params"]], plan)


def _adamw(groups: Any, plan: TrainingPlan) -> torch.optim.Optimizer:
    # The fused kernel reads the weights once instead of ten times: a third of the time on a CPU. On
    # other devices torch chooses.
    on_cpu = all(p.device.type == "cpu" for group in groups for p in group["params"])
    return torch.optim.AdamW(groups, lr=plan.lr, fused=True if on_cpu else None)


OPTIMIZERS: dict[str, Callable[[Any, TrainingPlan], torch.optim.Optimizer]] = {
    "sgd": lambda groups, plan: torch.optim.SGD(groups, lr=plan.lr, momentum=plan.momentum),
    "adamw": _adamw,
}


def _with_warmup(after: Callable[[float], float]) -> Callable[[int, TrainingPlan], float]:
    """A linear warm-up from 0, then a function of the share of the remaining steps that are done,
    as in transformers."""

    def factor(step: int, plan: TrainingPlan) -> float:
        if step < plan.warmup:
            return step / plan.warmup
        return max(0.0, after((step - plan.warmup) / max(1, plan.steps - plan.warmup)))

    return factor


SCHEDULES: dict[str, Callable[[int, TrainingPlan], float]] = {
    "constant": _with_warmup(lambda done: 1.0),
    "linear": _with_warmup(lambda done: 1.0 - done),
    "cosine": _with_warmup(lambda done: 0.5 * (1.0 + math.cos(math.pi * done))),
}
"""The factor of the learning rate at a step."""
