"""Faster linear layers on a few rows: the fastest of several equivalent products, by measurement.

Decoding multiplies one to ten rows with every weight. Matrix libraries are tuned for one row or
for many; in between, the same product can take three times as long when it is written from the
other side, and four rows can be faster than three. No weight is copied or changed, and every
variant gives the same numbers up to rounding. Verifying drafts takes half the time with it.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cutaway.models.lm import LM

WeightShape = tuple[int, ...]
# A variant must be clearly faster than the plain product to be used.
MAX_TIME_RATIO = 0.95
# Weights are used in turn up to this size: a single one would stay in the processor's cache.
CACHE_BYTES = 64 << 20


@dataclass(frozen=True)
class MatmulVariant:
    """How rows are multiplied with a weight: from which side, and zero-padded to how many rows."""

    transposed: bool
    rows: int

    def __call__(self, rows: Float[Tensor, "n d"], weight: Tensor) -> Float[Tensor, "n out"]:
        """rows @ weight.T."""
        count = len(rows)
        if count < self.rows:
            rows = torch.cat([rows, rows.new_zeros(self.rows - count, rows.shape[1])])
        if not self.transposed:
            return (rows @ weight.T)[:count]
        return (weight @ rows.T).T[:count].contiguous()


MatmulTable = Mapping[WeightShape, Mapping[int, MatmulVariant]]
"""By a weight's shape and the number of rows; the plain product is used for all others."""


def linear_layers(lm: LM) -> list[Any]:
    """The model's plain `nn.Linear` layers, including the output head."""
    return [module for module in lm.module.modules() if type(module) is nn.Linear]


@torch.inference_mode()
def measure_variants(
    lm: LM, most: int, *, tries: int = 2, clock: Callable[[], float] = time.perf_counter
) -> MatmulTable:
    """The fastest variant for 1 to `most` rows and each shape of weight, on this machine."""
    groups: dict[WeightShape, list[Tensor]] = {}
    for linear in linear_layers(lm):
        groups.setdefault(tuple(linear.weight.shape), []).append(linear.weight)
    variants = [MatmulVariant(side, rows) for rows in range(1, most + 1) for side in (False, True)]
    fastest: dict[WeightShape, dict[int, MatmulVariant]] = {}
    for shape, weights in groups.items():
        size = max(weights[0].numel() * weights[0].element_size(), 1)
        beyond_cache = weights[: -(-CACHE_BYTES // size)]
        seconds = {one: _seconds(one, beyond_cache, tries, clock) for one in variants}
        fastest[shape] = fastest_variants(seconds, most)
    return fastest


def fastest_variants(seconds: Mapping[MatmulVariant, float], most: int) -> dict[int, MatmulVariant]:
    """The fastest variant for each number of rows, which may be one for more rows."""
    fastest = {}
    for count in range(1, most + 1):
        best = min((one for one in seconds if one.rows >= count), key=lambda one: seconds[one])
        if seconds[best] < MAX_TIME_RATIO * seconds[MatmulVariant(False, count)]:
            fastest[count] = best
    return fastest


def _seconds(
    variant: MatmulVariant, weights: list[Tensor], tries: int, clock: Callable[[], float]
) -> float:
    """Seconds for all weights in turn, the best of a few tries."""
    first = weights[0]
    rows = torch.ones(variant.rows, first.shape[1], dtype=first.dtype, device=first.device)
    best = float("inf")
    for _ in range(tries):
        start = clock()
        for weight in weights:
            variant(rows, weight)
        best = min(best, clock() - start)
    return best


@contextmanager
def tuned_small_matmuls(lm: LM, variants: MatmulTable) -> Iterator[None]:
    """Use these variants in the model's linear layers; they are restored afterwards."""
    with ExitStack() as stack:
        for linear in linear_layers(lm):
            by_count = variants.get(tuple(linear.weight.shape))
            if by_count:
                stack.callback(_restore_forward, linear, linear.__dict__.get("forward"))
                linear.forward = partial(_forward, linear, linear.forward, by_count)
        yield


def _forward(
    linear: nn.Linear,
    plain: Callable[[Tensor], Tensor],
    variants: Mapping[int, MatmulVariant],
    state: Tensor,
) -> Tensor:
    variant = variants.get(state.numel() // state.shape[-1])
    if variant is None:
        return plain(state)
    out = variant(state.reshape(-1, state.shape[-1]), linear.weight)
    out = out if linear.bias is None else out + linear.bias
    return out.view(*state.shape[:-1], -1)


def _restore_forward(linear: Any, own: Callable[..., Tensor] | None) -> None:
    del linear.forward
    if own is not None:
        linear.forward = own
