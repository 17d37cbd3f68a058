"""Sums over examples of squared gradients, from layer inputs and output gradients.

The gradient of a weight matrix on one example is a sum of outer products over tokens: output
gradient times input. It must be squared per example, so the products are computed per example, a
few rows at a time in a buffer that fits into the processor's cache, squared, and added to the sum.
No per-example gradient is kept.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

# Elements of the buffer: 512 kB of float32, small enough for the second-level cache.
BUFFER_SIZE = 1 << 17


class NoGradientRule(Exception):
    """A weight is used in a way that no rule covers."""


@dataclass(frozen=True)
class OuterProductUse:
    """One use of a matrix: its gradient per example is the sum over tokens of left (x) right."""

    left: Float[Tensor, "batch seq out"]
    right: Float[Tensor, "batch seq into"]


@dataclass(frozen=True)
class EmbeddingUse:
    """One use of an embedding table: rows `ids` were read, with output gradients `grad`."""

    ids: Int[Tensor, "batch seq"]
    grad: Float[Tensor, "batch seq d"]


@dataclass(frozen=True)
class DenseUse:
    """One use of a small weight: its gradient per example."""

    grad: Float[Tensor, "batch ..."]


WeightUse = OuterProductUse | EmbeddingUse | DenseUse


def add_squared_gradients(total: Float[Tensor, "..."], uses: list[WeightUse]) -> None:
    """Add the sum over examples of the squared gradient to `total`.

    A weight that is used several times (tied embeddings, shared layers) has one gradient per
    example: its uses are added before squaring.
    """
    outer = [use for use in uses if isinstance(use, OuterProductUse)]
    lookups = [use for use in uses if isinstance(use, EmbeddingUse)]
    dense = [use.grad for use in uses if isinstance(use, DenseUse)]
    if dense and (outer or lookups):
        raise NoGradientRule("a weight is used as a matrix and elementwise")
    if dense:
        total += torch.stack(dense).sum(dim=0).square().sum(dim=0)
    elif outer:
        _add_outer(total, _join_outer(outer), lookups)
    elif lookups:
        _add_embedding(total, _join_embedding(lookups))


def _join_outer(uses: list[OuterProductUse]) -> OuterProductUse:
    """Several uses as one with more tokens."""
    if len(uses) == 1:
        return uses[0]
    return OuterProductUse(
        torch.cat([use.left for use in uses], dim=1), torch.cat([use.right for use in uses], dim=1)
    )


def _join_embedding(uses: list[EmbeddingUse]) -> EmbeddingUse:
    if len(uses) == 1:
        return uses[0]
    return EmbeddingUse(
        torch.cat([use.ids for use in uses], dim=1), torch.cat([use.grad for use in uses], dim=1)
    )


def _add_outer(total: Tensor, use: OuterProductUse, lookups: list[EmbeddingUse]) -> None:
    """One block of rows at a time, so that products and sums stay in the cache."""
    # Views are product once, because there are as many products as blocks times examples.
    pairs = [_without_padding(left, right) for left, right in zip(use.left, use.right, strict=True)]
    sums = (
        [_row_gradients(_join_embedding(lookups), i) for i in range(len(pairs))] if lookups else []
    )
    rows = max(1, BUFFER_SIZE // total.shape[1])
    buffer = total.new_empty(min(rows, len(total)), total.shape[1])
    for start in range(0, len(total), rows):
        part = total[start : start + rows]
        product = buffer[: len(part)]
        for i, (left, right) in enumerate(pairs):
            torch.mm(left[start : start + rows], right, out=product)
            if sums:
                _add_rows(product, start, *sums[i])
            part.addcmul_(product, product)


def _without_padding(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """(out, tokens) and (tokens, into) of the tokens with a gradient; padding has none."""
    used = left.any(dim=1) & right.any(dim=1)
    return (left.T, right) if bool(used.all()) else (left[used].T, right[used])


def _row_gradients(lookups: EmbeddingUse, i: int) -> tuple[Tensor, Tensor]:
    """The rows that example i reads, sorted, and the summed gradient of each."""
    ids, place = lookups.ids[i].unique(return_inverse=True)
    grad = lookups.grad.new_zeros(len(ids), lookups.grad.shape[2])
    return ids, grad.index_add_(0, place, lookups.grad[i])


def _add_rows(product: Tensor, start: int, ids: Tensor, grad: Tensor) -> None:
    """Add the gradients of those rows that are in this block."""
    bounds = torch.tensor([start, start + len(product)], device=ids.device)
    low, high = torch.searchsorted(ids, bounds).tolist()
    if high > low:
        product.index_add_(0, ids[low:high] - start, grad[low:high])


def _add_embedding(total: Tensor, use: EmbeddingUse) -> None:
    """Only the rows that were read change."""
    for i in range(len(use.ids)):
        ids, grad = _row_gradients(use, i)
        total.index_add_(0, ids, grad.square())
