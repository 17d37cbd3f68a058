"""The training loop of gradient probes.

Standardised features, Adam, at least 30 epochs and 300 steps; the learning rate is halved when the
validation loss stops falling, and training ends when it is a 1000th of its start. The weights of
the epoch with the lowest validation loss are kept. The global random state is not changed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from cutaway.core.errors import BadSpec, RunError
from cutaway.methods.probe.maths.fitted import (
    FitFunction,
    FitSettings,
    FittedProbe,
    squeeze_outputs,
)
from cutaway.methods.probe.maths.nets import NetFactory, RaggedTokens

FeaturesT = TypeVar("FeaturesT", Tensor, RaggedTokens)
Loss = Callable[[Tensor, Tensor], Tensor]
Data = tuple[Any, Tensor]
# Rows per forward pass without gradients.
FORWARD_BATCH = 4096


@dataclass(frozen=True)
class ProbeTraining:
    """How a network is trained."""

    rate: float = 1e-3
    batch: int = 128
    epochs: int = 30
    least: int = 300
    """Minimum number of steps: small training sets get more epochs."""
    patience: int = 3
    """Epochs without a better loss before the learning rate is halved."""

    def rounds(self, n: int) -> int:
        """The number of epochs over `n` rows."""
        # A last batch of one row is merged with the batch before.
        steps = max(1, -(-(n - 1) // self.batch))
        return max(self.epochs, -(-self.least // steps))


@dataclass(frozen=True)
class _TargetScale:
    """Scales targets for the loss, and outputs back to the targets."""

    task: str
    middle: float
    spread: float

    def forth(self, y: Tensor, device: torch.device) -> Tensor:
        if self.task == "multiclass":
            return y.to(device).long()
        return ((y if y.ndim == 2 else y[:, None]).to(device).float() - self.middle) / self.spread

    def back(self, out: Tensor) -> Tensor:
        return out * self.spread + self.middle


def gradient_fit(module: NetFactory, training: ProbeTraining | None = None) -> FitFunction:
    """Train networks made by the factory."""
    plan = training or ProbeTraining()

    def make(
        x_train: Any, y_train: Tensor, x_val: Any, y_val: Tensor, settings: FitSettings
    ) -> FittedProbe:
        standard, scale, device = (
            _standardiser(x_train),
            _target_scale(y_train, settings),
            _values(x_train).device,
        )
        train = standard(x_train), scale.forth(y_train, device)
        val = standard(x_val), scale.forth(y_val, device)
        with _isolated_rng(settings.seed):
            net = module(_values(x_train).shape[1], settings.outputs).to(device)
            _check_output_shape(net, _take(train[0], torch.arange(min(2, len(x_train)))), settings)
            losses = _train(net, train, val, settings, plan)
        net.eval()

        @torch.no_grad()
        def score(x: Any) -> Tensor:
            return squeeze_outputs(scale.back(_predict(net, standard(x))), settings).cpu()

        link = "value" if settings.task == "regression" else "logit"
        count = sum(p.numel() for p in net.parameters())
        return FittedProbe(score, link, count, losses, settings.task != "multilabel")  # type: ignore[arg-type]

    return make


def _train(
    net: nn.Module, train: Data, val: Data, settings: FitSettings, plan: ProbeTraining
) -> dict[str, Any]:
    """Train in place and keep the weights of the best epoch; returns the losses of all epochs."""
    order = torch.Generator().manual_seed(settings.seed)
    loss = _loss(train[1], settings)
    optimizer = torch.optim.Adam(net.parameters(), lr=plan.rate)
    slower = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=plan.patience
    )
    train_loss, val_loss = list[float](), list[float]()
    best, kept = float("inf"), deepcopy(net.state_dict())
    for _ in range(plan.rounds(len(train[1]))):
        train_loss.append(_epoch(net, train, loss, optimizer, order, plan.batch))
        if len(val[1]):
            val_loss.append(_mean_loss(net, val, loss))
        watched = (val_loss or train_loss)[-1]
        slower.step(watched)
        if watched < best:
            best, kept = watched, deepcopy(net.state_dict())
        if optimizer.param_groups[0]["lr"] < 1e-3 * plan.rate:
            break
    if best == float("inf"):
        raise RunError(
            f"The loss of {type(net).__name__} was never finite, first {train_loss[:3]!r}; "
            "check its forward."
        )
    net.load_state_dict(kept)
    chosen = (val_loss or train_loss).index(best) + 1
    return {"train_loss": train_loss, "val_loss": val_loss, "best_epoch": chosen}


def _epoch(
    net: nn.Module,
    data: Data,
    loss: Loss,
    optimizer: torch.optim.Optimizer,
    order: torch.Generator,
    batch: int,
) -> float:
    """One pass over the training rows in random order; the mean loss."""
    net.train()
    total = 0.0
    for index in _batches(torch.randperm(len(data[1]), generator=order), batch):
        optimizer.zero_grad()
        value = loss(_as_columns(net(_take(data[0], index))), data[1][index])
        value.backward()
        optimizer.step()
        total += float(value.detach()) * len(index)
    return total / len(data[1])


def _batches(order: Tensor, size: int) -> list[Tensor]:
    parts = list(order.split(size))
    # Batch normalisation fails on a batch of one row.
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


@torch.no_grad()
def _mean_loss(net: nn.Module, data: Data, loss: Loss) -> float:
    net.eval()
    return float(loss(_predict(net, data[0]), data[1]))


def _predict(net: nn.Module, x: Any) -> Tensor:
    parts = [_as_columns(net(_take(x, some))) for some in torch.arange(len(x)).split(FORWARD_BATCH)]
    return torch.cat(parts)


def _as_columns(out: Tensor) -> Tensor:
    return out[:, None] if out.ndim == 1 else out


def _check_output_shape(net: nn.Module, x: Any, settings: FitSettings) -> None:
    """BadSpec unless the network gives one score per output; also initialises lazy layers."""
    net.eval()
    with torch.no_grad():
        out = net(x)
    if not isinstance(out, Tensor) or _as_columns(out).shape != (len(x), settings.outputs):
        shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise BadSpec(
            f"forward of {type(net).__name__} must give shape ({len(x)}, {settings.outputs}) for "
            f"{len(x)} rows of a {settings.task} task, got {shape}."
        )


def _loss(y: Tensor, settings: FitSettings) -> Loss:
    """The loss function of the task, with class weights if balanced."""
    if settings.task == "regression":
        return nn.functional.mse_loss
    if settings.task == "multiclass":
        count = torch.bincount(y, minlength=settings.classes).clamp_min(1)
        each = len(y) / (settings.classes * count.float()) if settings.balanced else None
        return lambda out, target: nn.functional.cross_entropy(out, target, weight=each)
    positive = y.sum(0).clamp_min(1.0)
    ratio = (len(y) - positive) / positive if settings.balanced else None
    return lambda out, target: nn.functional.binary_cross_entropy_with_logits(
        out, target, pos_weight=ratio
    )


def _target_scale(y: Tensor, settings: FitSettings) -> _TargetScale:
    if settings.task != "regression":
        return _TargetScale(settings.task, 0.0, 1.0)
    spread = float(y.double().std(correction=0))
    return _TargetScale(settings.task, float(y.double().mean()), spread if spread > 0 else 1.0)


def _standardiser(x: FeaturesT) -> Callable[[FeaturesT], FeaturesT]:
    """A function that standardises features by the mean and deviation of these rows."""
    values = _values(x).double()
    mean, deviation = values.mean(0), values.std(0, correction=0)
    deviation = torch.where(deviation <= 1e-7 * mean.abs(), torch.ones_like(mean), deviation)
    deviation = torch.where(deviation == 0, torch.ones_like(mean), deviation)

    def standard(x: FeaturesT) -> FeaturesT:
        made = ((_values(x).double() - mean) / deviation).float()
        return RaggedTokens(made, x.offsets) if isinstance(x, RaggedTokens) else made

    return standard


def _values(x: Tensor | RaggedTokens) -> Tensor:
    return x.values if isinstance(x, RaggedTokens) else x


def _take(x: FeaturesT, index: Tensor) -> FeaturesT:
    return x.take(index.to(x.offsets.device)) if isinstance(x, RaggedTokens) else x[index]


@contextmanager
def _isolated_rng(seed: int) -> Iterator[None]:
    """Seed initial weights and dropout without changing the global random state.

    Layers of torch take no generator, so the global one is seeded and restored.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
