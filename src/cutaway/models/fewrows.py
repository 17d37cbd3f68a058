"""Linear layers on a few rows: the quickest of several equal ways, told by measurement.

Writing text multiplies one to ten rows with every weight. Libraries of matrix products are made
for one row or for many: in between, the same product can take three times as long when it is
written from the other side, and four rows can be quicker than three. No weight is copied or
changed, and every way gives the same numbers up to rounding.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cutaway.models.lm import LM

Shape = tuple[int, ...]
# A way that is not clearly quicker than the plain one is not worth leaving it for.
CLEARLY = 0.95
# Weights are taken in turn until this many bytes: one alone would stay in the processor's cache.
COLD = 64 << 20


@dataclass(frozen=True)
class Way:
    """How rows meet a weight: from which side, and filled up with zeros to how many rows."""

    turned: bool
    rows: int

    def __call__(self, rows: Float[Tensor, "n d"], weight: Tensor) -> Float[Tensor, "n out"]:
        """rows W', whichever way."""
        count = len(rows)
        if count < self.rows:
            rows = torch.cat([rows, rows.new_zeros(self.rows - count, rows.shape[1])])
        if not self.turned:
            return (rows @ weight.T)[:count]
        return (weight @ rows.T).T[:count].contiguous()


Ways = Mapping[Shape, Mapping[int, Way]]
"""By a weight's shape and a number of rows; where nothing is said, the plain way is taken."""


def linears(lm: LM) -> list[Any]:
    """The model's plain `nn.Linear` layers, the head among them."""
    return [module for module in lm.module.modules() if type(module) is nn.Linear]


@torch.inference_mode()
def quickest_ways(
    lm: LM, most: int, *, tries: int = 2, clock: Callable[[], float] = time.perf_counter
) -> Ways:
    """The quickest way for 1 to `most` rows, for each shape of weight, as measured here."""
    groups: dict[Shape, list[Tensor]] = {}
    for linear in linears(lm):
        groups.setdefault(tuple(linear.weight.shape), []).append(linear.weight)
    found: dict[Shape, dict[int, Way]] = {}
    for shape, weights in groups.items():
        chosen = _cold(weights)
        took = {
            Way(turned, rows): _seconds(Way(turned, rows), chosen, tries, clock)
            for rows in range(1, most + 1)
            for turned in (False, True)
        }
        found[shape] = best_ways(took, most)
    return found


def best_ways(took: Mapping[Way, float], most: int) -> dict[int, Way]:
    """The quickest way for each number of rows; more rows than asked for may be the quickest."""
    found = {}
    for count in range(1, most + 1):
        best = min((way for way in took if way.rows >= count), key=lambda way: took[way])
        if took[best] < CLEARLY * took[Way(False, count)]:
            found[count] = best
    return found


def _cold(weights: list[Tensor]) -> list[Tensor]:
    """As many of the weights as don't fit into a cache."""
    size = max(weights[0].numel() * weights[0].element_size(), 1)
    return weights[: -(-COLD // size)]


def _seconds(way: Way, weights: Iterable[Tensor], tries: int, clock: Callable[[], float]) -> float:
    """Seconds for all weights in turn, the best of a few tries."""
    weights = list(weights)
    rows = torch.ones(way.rows, weights[0].shape[1], dtype=weights[0].dtype)
    rows = rows.to(weights[0].device)
    best = float("inf")
    for _ in range(tries):
        start = clock()
        for weight in weights:
            way(rows, weight)
        best = min(best, clock() - start)
    return best


@contextmanager
def few_rows(lm: LM, ways: Ways) -> Iterator[None]:
    """The model whose linear layers take these ways; its own again afterwards."""
    with ExitStack() as stack:
        for linear in linears(lm):
            by_count = ways.get(tuple(linear.weight.shape))
            if by_count:
                stack.callback(_give_back, linear, linear.__dict__.get("forward"))
                linear.forward = partial(_forward, linear, linear.forward, by_count)
        yield


def _forward(
    linear: nn.Linear, plain: Callable[[Tensor], Tensor], ways: Mapping[int, Way], state: Tensor
) -> Tensor:
    way = ways.get(state.numel() // state.shape[-1])
    if way is None:
        return plain(state)
    out = way(state.reshape(-1, state.shape[-1]), linear.weight)
    out = out if linear.bias is None else out + linear.bias
    return out.view(*state.shape[:-1], -1)


def _give_back(linear: Any, own: Callable[..., Tensor] | None) -> None:
    del linear.forward
    if own is not None:
        linear.forward = own
