"""One pass of the model over all rows, shown to any number of visitors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.console import Console
from cutaway.core.digest import digest_json
from cutaway.extract.request import TokenRows
from cutaway.extract.visitors import VisitedBatch, Visitor, visited_layers
from cutaway.home import read_memo, write_memo
from cutaway.models.batches import (
    SMALL_SET_TOKENS,
    Stopwatch,
    TokenBudget,
    batches_by_length,
    default_budget,
)
from cutaway.models.hooks import visit_layers
from cutaway.models.lm import LM
from cutaway.models.tokens import pad

BUDGET_MEMO = "budgets"
"""The memo with the fastest budget of each model and machine."""


@dataclass(frozen=True)
class PassStats:
    """Rows, real tokens, tokens with padding, seconds, and the token budget of a pass."""

    rows: int
    tokens: int
    padded: int
    seconds: float
    budget: int

    @property
    def speed(self) -> float:
        """Real tokens per second."""
        return self.tokens / max(self.seconds, 1e-9)


def run_pass(
    lm: LM,
    token_rows: TokenRows,
    visitors: Sequence[Visitor],
    *,
    console: Console,
    todo: NDArray[np.int64] | None = None,
    budget: TokenBudget | None = None,
    title: str = "reading",
) -> PassStats:
    """Show every requested layer of every row in `todo` to the visitors, once."""
    rows = np.arange(len(token_rows.rows)) if todo is None else todo
    lengths = [len(token_rows.rows[i]) for i in rows]
    budget = budget or _budget_for(lm, token_rows.tokens)
    clock, padded, seconds = Stopwatch(), 0, 0.0
    with console.progress(title, sum(lengths)) as advance, torch.inference_mode():
        for batch, allowed in batches_by_length(lengths, budget):
            _forward_batch(lm, token_rows, rows[batch.rows], visitors)
            lap = clock.lap()
            if budget.learn(allowed, batch.tokens, lap):
                # Written at once, so that a run killed now resumes with the same batches.
                write_memo(BUDGET_MEMO, _speed_key(lm), budget.best())
            seconds, padded = seconds + lap, padded + batch.width * len(batch.rows)
            advance(batch.tokens, note=f"{batch.tokens / max(lap, 1e-9):,.0f} tokens/s")
    return PassStats(len(rows), sum(lengths), padded, seconds, budget.best())


def _budget_for(lm: LM, tokens: int) -> TokenBudget:
    """The budget of a set with this many tokens: the same one in every run on this machine."""
    if tokens < SMALL_SET_TOKENS:
        return TokenBudget(fixed=default_budget())
    known = read_memo(BUDGET_MEMO, _speed_key(lm))
    return TokenBudget(fixed=known if type(known) is int and known > 0 else None)


def _speed_key(lm: LM) -> str:
    """Everything that the speed of a batch depends on."""
    place = (lm.digest, lm.device, lm.dtype, lm.attention, torch.get_num_threads())
    return digest_json([*place, torch.__version__])


def _forward_batch(
    lm: LM, token_rows: TokenRows, rows: NDArray[np.int64], visitors: Sequence[Visitor]
) -> None:
    """One batch through the model; visitors see each layer as it is computed."""
    ids, real = pad([token_rows.rows[i] for i in rows], lm.pad_id)
    ids, real = ids.to(lm.device), real.to(lm.device)
    counted = _counted_tokens(real, token_rows.first_counted[rows])
    batch = VisitedBatch(rows, counted, _mark_weights(lm, token_rows, rows, ids, real))

    def visit(layer: int, hidden: Tensor, weights: Tensor | None) -> None:
        for visitor in visitors:
            if layer in visitor.layers:
                visitor.visit(layer, hidden, weights, batch)

    # In causal models no token sees the padding to its right. Without a mask the kernels are
    # faster, and attention weights at padded positions are never used.
    mask = torch.ones_like(real) if lm.kind == "causal" else real
    attention = any(visitor.attention for visitor in visitors)
    visit_layers(lm, ids, mask, visited_layers(visitors), visit, attention=attention)
    for visitor in visitors:
        visitor.end(batch)


def _counted_tokens(real: Tensor, first: NDArray[np.int64]) -> Tensor:
    """The real tokens that weren't counted in an earlier window."""
    if not first.any():
        return real
    position = torch.arange(real.shape[1], device=real.device)
    return real & (position >= torch.as_tensor(first, device=real.device)[:, None])


def _mark_weights(
    lm: LM, token_rows: TokenRows, rows: NDArray[np.int64], ids: Tensor, real: Tensor
) -> Tensor | None:
    """1.0 at the marked positions; at the mask tokens when no position was marked."""
    if not any(len(token_rows.marks[i]) for i in rows):
        mask_id = lm.tokenizer.mask_token_id
        return None if mask_id is None else ((ids == mask_id) & real).float()
    marks = torch.zeros(real.shape, dtype=torch.float32)
    for place, row in enumerate(rows):
        marks[place, torch.as_tensor(token_rows.marks[row])] = 1.0
    return marks.to(real.device)
