"""Sums over examples of squared gradients, from the pieces that autograd would multiply out.

The gradient of one weight matrix on one example is a sum of outer products, one per token:
what came back at the output times what went in. It is squared per example, so the products have
to be made per example; they never have to be kept. Each is made a few rows at a time, in a buffer
that stays in the processor's cache, squared, and added to the one Fisher that is kept.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

# Numbers in the buffer: 512 kB of float32, small enough for the second-level cache.
BUFFER_SIZE = 1 << 17


class NoGradientRule(Exception):
    """A weight is used in a way that the rules don't know."""


@dataclass(frozen=True)
class OuterProductUse:
    """One use of a matrix: its gradient is the sum over tokens of left (x) right, per example."""

    left: Float[Tensor, "batch seq out"]
    right: Float[Tensor, "batch seq into"]


@dataclass(frozen=True)
class EmbeddingUse:
    """One use of a table: row `ids` of it was read, and `grad` came back there."""

    ids: Int[Tensor, "batch seq"]
    grad: Float[Tensor, "batch seq d"]


@dataclass(frozen=True)
class DenseUse:
    """One use of a small weight: its gradient per example, as it is."""

    grad: Float[Tensor, "batch ..."]


WeightUse = OuterProductUse | EmbeddingUse | DenseUse


def add_squared_gradients(total: Float[Tensor, "..."], uses: list[WeightUse]) -> None:
    """`total` grows by the sum over examples of the square of their summed uses.

    A weight used in several places (tied embeddings, shared layers) has one gradient per
    example: its uses are added before anything is squared.
    """
    outer = [use for use in uses if isinstance(use, OuterProductUse)]
    picked = [use for use in uses if isinstance(use, EmbeddingUse)]
    dense = [use.grad for use in uses if isinstance(use, DenseUse)]
    if dense and (outer or picked):
        raise NoGradientRule("a weight is used as a matrix and elementwise")
    if dense:
        total += torch.stack(dense).sum(dim=0).square().sum(dim=0)
    elif outer:
        _add_outer(total, _join_outer(outer), picked)
    elif picked:
        _add_embedding(total, _join_embedding(picked))


def _join_outer(uses: list[OuterProductUse]) -> OuterProductUse:
    """Several uses as one with more tokens: sums of outer products just go on."""
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


def _add_outer(total: Tensor, use: OuterProductUse, picked: list[EmbeddingUse]) -> None:
    """A block of rows at a time, so that products and sums stay in the cache."""
    # Views made once: there are as many products as blocks times examples.
    pairs = [_without_padding(left, right) for left, right in zip(use.left, use.right, strict=True)]
    sums = [_row_gradients(_join_embedding(picked), i) for i in range(len(pairs))] if picked else []
    rows = max(1, BUFFER_SIZE // total.shape[1])
    buffer = total.new_empty(min(rows, len(total)), total.shape[1])
    for start in range(0, len(total), rows):
        part = total[start : start + rows]
        made = buffer[: len(part)]
        for i, (left, right) in enumerate(pairs):
            torch.mm(left[start : start + rows], right, out=made)
            if sums:
                _add_rows(made, start, *sums[i])
            part.addcmul_(made, made)


def _without_padding(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """(out, tokens) and (tokens, into) of the tokens that add anything: padding gives only 0."""
    live = left.any(dim=1) & right.any(dim=1)
    return (left.T, right) if bool(live.all()) else (left[live].T, right[live])


def _row_gradients(picked: EmbeddingUse, i: int) -> tuple[Tensor, Tensor]:
    """The rows that example i reads, in order, and the sum of what came back at each."""
    ids, place = picked.ids[i].unique(return_inverse=True)
    grad = picked.grad.new_zeros(len(ids), picked.grad.shape[2])
    return ids, grad.index_add_(0, place, picked.grad[i])


def _add_rows(made: Tensor, start: int, ids: Tensor, grad: Tensor) -> None:
    """Add what came back at the rows of this block."""
    bounds = torch.tensor([start, start + len(made)], device=ids.device)
    low, high = torch.searchsorted(ids, bounds).tolist()
    if high > low:
        made.index_add_(0, ids[low:high] - start, grad[low:high])


def _add_embedding(total: Tensor, use: EmbeddingUse) -> None:
    """Only the rows that were read change."""
    for i in range(len(use.ids)):
        ids, grad = _row_gradients(use, i)
        total.index_add_(0, ids, grad.square())
