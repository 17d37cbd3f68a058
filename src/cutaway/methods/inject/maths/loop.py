"""Squared gradients by plain autograd, one example at a time: the reference of batched rules."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

TakeGradient = Callable[[str, Tensor], None]


@contextmanager
def gradient_hooks(module: nn.Module, take: TakeGradient) -> Iterator[None]:
    """Call take(name, gradient) for each weight during a backward pass; no gradient is kept.

    So a backward pass holds the gradient of one weight at a time, not a copy of the model.
    """
    trainable = {name: p.requires_grad for name, p in module.named_parameters()}
    handles = []
    for name, weight in module.named_parameters():
        weight.requires_grad_(True)
        handles.append(weight.register_post_accumulate_grad_hook(_gradient_hook(name, take)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for name, weight in module.named_parameters():
            weight.grad = None
            weight.requires_grad_(trainable[name])


def _gradient_hook(name: str, take: TakeGradient) -> Callable[[Tensor], None]:
    def hook(weight: Tensor) -> None:
        if weight.grad is not None:
            take(name, weight.grad)
        weight.grad = None

    return hook


def add_by_autograd(
    module: nn.Module, total: Mapping[str, Tensor], loss: Callable[[], Tensor]
) -> None:
    """Add the squared gradient of one example's loss to `total`."""

    def add(name: str, grad: Tensor) -> None:
        total[name].addcmul_(grad.to(total[name].dtype), grad.to(total[name].dtype))

    with gradient_hooks(module, add), torch.enable_grad():
        loss().sum().backward()


class FisherSample:
    """Some entries and the sum of each weight's squares: enough to compare two Fishers."""

    SIZE = 2048

    def __init__(self, total: Mapping[str, Tensor], *, seed: int = 0) -> None:
        rng = torch.Generator().manual_seed(seed)
        self.entries = {
            name: torch.randint(value.numel(), (min(self.SIZE, value.numel()),), generator=rng)
            for name, value in total.items()
        }
        self.values = {name: torch.zeros(len(p) + 1) for name, p in self.entries.items()}

    def add(self, name: str, grad: Tensor) -> None:
        """Add one example's squared gradient."""
        self.values[name] += self._of(name, grad.detach().float().reshape(-1).square())

    def _of(self, name: str, squares: Tensor) -> Tensor:
        entries = squares[self.entries[name].to(squares.device)].cpu()
        return torch.cat([entries, squares.sum().cpu()[None]])

    def take(self, total: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The same entries and sums of a Fisher."""
        return {name: self._of(name, total[name].reshape(-1).float()) for name in self.values}

    def differences(self, others: Mapping[str, Tensor]) -> dict[str, float]:
        """The relative difference of each weight from the values of another sample."""
        largest = max(float(value[-1]) for value in self.values.values())
        found = {}
        for name, mine in self.values.items():
            # A gradient that is tiny compared with the others' is only rounding.
            size = max(float(mine.norm()), 1e-10 * largest, 1e-30)
            found[name] = float((mine - others[name]).norm()) / size
        return found
