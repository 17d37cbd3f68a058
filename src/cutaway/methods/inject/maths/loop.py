"""The Fisher's plain way: one example after the other through autograd. The yardstick."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def gradient_hooks(module: nn.Module, take: Callable[[str, Tensor], None]) -> Iterator[None]:
    """take(name, gradient) for each weight in turn during a backward; none is kept afterwards.

    So a backward holds one weight's gradient at a time, not a copy of the model.
    """
    frozen = {name: p.requires_grad for name, p in module.named_parameters()}
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
            weight.requires_grad_(frozen[name])


def _gradient_hook(name: str, take: Callable[[str, Tensor], None]) -> Callable[[Tensor], None]:
    def taken(weight: Tensor) -> None:
        if weight.grad is not None:
            take(name, weight.grad)
        weight.grad = None

    return taken


def add_by_autograd(
    module: nn.Module, total: Mapping[str, Tensor], loss: Callable[[], Tensor]
) -> None:
    """`total` grows by the squared gradient of one example's loss."""
    with (
        gradient_hooks(module, lambda name, grad: _add_square(total[name], grad)),
        torch.enable_grad(),
    ):
        loss().sum().backward()


def _add_square(total: Tensor, grad: Tensor) -> None:
    total.addcmul_(grad.to(total.dtype), grad.to(total.dtype))


class FisherSample:
    """A few entries and the sum of each weight's squares: enough to tell two Fishers apart."""

    SIZE = 2048

    def __init__(self, total: Mapping[str, Tensor], *, seed: int = 0) -> None:
        rng = torch.Generator().manual_seed(seed)
        self.places = {
            name: torch.randint(value.numel(), (min(self.SIZE, value.numel()),), generator=rng)
            for name, value in total.items()
        }
        self.values = {name: torch.zeros(len(p) + 1) for name, p in self.places.items()}

    def add(self, name: str, grad: Tensor) -> None:
        """One example's gradient, squared."""
        squares = grad.detach().float().reshape(-1).square()
        self._put(name, squares)

    def of(self, total: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The same entries of a Fisher."""
        other = FisherSample.__new__(FisherSample)
        other.places = self.places
        other.values = {name: torch.zeros_like(value) for name, value in self.values.items()}
        for name, value in total.items():
            other._put(name, value.reshape(-1).float())
        return other.values

    def _put(self, name: str, squares: Tensor) -> None:
        self.values[name][:-1] += squares[self.places[name].to(squares.device)].cpu()
        self.values[name][-1] += squares.sum().cpu()

    def difference(self, total: Mapping[str, Tensor]) -> tuple[float, str]:
        """The largest relative difference over all weights, and the weight that has it."""
        theirs, worst = self.of(total), (0.0, "")
        whole = max(float(value[-1]) for value in self.values.values())
        for name, mine in self.values.items():
            # A weight whose gradient is nothing beside the others' is only rounding.
            size = max(float(mine.norm()), 1e-10 * whole, 1e-30)
            worst = max(worst, (float((mine - theirs[name]).norm()) / size, name))
        return worst
