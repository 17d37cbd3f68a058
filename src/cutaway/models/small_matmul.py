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

WeightShape = tuple[int, ...]
# A way that is not clearly quicker than the plain one is not worth leaving it for.
MAX_TIME_RATIO = 0.95
# Weights are taken in turn until this many bytes: one alone would stay in the processor's cache.
CACHE_BYTES = 64 << 20


@dataclass(frozen=True)
class MatmulVariant:
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


MatmulTable = Mapping[WeightShape, Mapping[int, MatmulVariant]]
"""By a weight's shape and a number of rows; where nothing is said, the plain way is taken."""


def linear_layers(lm: LM) -> list[Any]:
    """The model's plain `nn.Linear` layers, the head among them."""
    return [module for module in lm.module.modules() if type(module) is nn.Linear]


@torch.inference_mode()
def measure_variants(
    lm: LM, most: int, *, tries: int = 2, clock: Callable[[], float] = time.perf_counter
) -> MatmulTable:
    """The quickest way for 1 to `most` rows, for each shape of weight, as measured here."""
    groups: dict[WeightShape, list[Tensor]] = {}
    for linear in linear_layers(lm):
        groups.setdefault(tuple(linear.weight.shape), []).append(linear.weight)
    found: dict[WeightShape, dict[int, MatmulVariant]] = {}
    for shape, weights in groups.items():
        chosen = _beyond_cache(weights)
        took = {
            MatmulVariant(turned, rows): _seconds(MatmulVariant(turned, rows), chosen, tries, clock)
            for rows in range(1, most + 1)
            for turned in (False, True)
        }
        found[shape] = fastest_variants(took, most)
    return found


def fastest_variants(took: Mapping[MatmulVariant, float], most: int) -> dict[int, MatmulVariant]:
    """The quickest way for each number of rows; more rows than asked for may be the quickest."""
    found = {}
    for count in range(1, most + 1):
        best = min((way for way in took if way.rows >= count), key=lambda way: took[way])
        if took[best] < MAX_TIME_RATIO * took[MatmulVariant(False, count)]:
            found[count] = best
    return found


def _beyond_cache(weights: list[Tensor]) -> list[Tensor]:
    """As many of the weights as don't fit into a cache."""
    size = max(weights[0].numel() * weights[0].element_size(), 1)
    return weights[: -(-CACHE_BYTES // size)]


def _seconds(
    way: MatmulVariant, weights: Iterable[Tensor], tries: int, clock: Callable[[], float]
) -> float:
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
def tuned_small_matmuls(lm: LM, ways: MatmulTable) -> Iterator[None]:
    """The model whose linear layers take these ways; its own again afterwards."""
    with ExitStack() as stack:
        for linear in linear_layers(lm):
            by_count = ways.get(tuple(linear.weight.shape))
            if by_count:
                stack.callback(_restore_forward, linear, linear.__dict__.get("forward"))
                linear.forward = partial(_forward, linear, linear.forward, by_count)
        yield


def _forward(
    linear: nn.Linear,
    plain: Callable[[Tensor], Tensor],
    ways: Mapping[int, MatmulVariant],
    state: Tensor,
) -> Tensor:
    way = ways.get(state.numel() // state.shape[-1])
    if way is None:
        return plain(state)
    out = way(state.reshape(-1, state.shape[-1]), linear.weight)
    out = out if linear.bias is None else out + linear.bias
    return out.view(*state.shape[:-1], -1)


def _restore_forward(linear: Any, own: Callable[..., Tensor] | None) -> None:
    del linear.forward
    if own is not None:
        linear.forward = own
