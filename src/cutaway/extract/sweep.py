"""One pass of the model over all rows, with any number of visitors watching."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.console import Console
from cutaway.core.digest import digest_json
from cutaway.extract.token_rows import TokenRows
from cutaway.extract.visitors import VisitedBatch, Visitor, visited_layers
from cutaway.models.batches import (
    SMALL_SET_TOKENS,
    Stopwatch,
    TokenBatch,
    TokenBudget,
    batches_by_length,
    default_budget,
)
from cutaway.models.lm import LM
from cutaway.models.memo import read_memo, write_memo
from cutaway.models.read import visit_layers
from cutaway.models.tokens import pad

BUDGET_MEMO = "budgets"
"""The table of the home in which settled budgets are kept."""


@dataclass(frozen=True)
class PassStats:
    """What a pass did: rows, real tokens, tokens with padding, seconds, the budget it found."""

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
    fed: TokenRows,
    visitors: Sequence[Visitor],
    *,
    console: Console,
    todo: NDArray[np.int64] | None = None,
    budget: TokenBudget | None = None,
    title: str = "reading",
) -> PassStats:
    """Show every wanted layer of every row in `todo` to the visitors, once."""
    rows = np.arange(len(fed.rows)) if todo is None else todo
    lengths = [len(fed.rows[i]) for i in rows]
    budget = budget or _budget_for(lm, fed.tokens)
    layers, attention = visited_layers(visitors), any(v.attention for v in visitors)
    clock, padded, seconds = Stopwatch(), 0, 0.0
    with console.progress(title, sum(lengths)) as advance, torch.inference_mode():
        for batch, allowed in batches_by_length(lengths, budget):
            _forward_batch(lm, fed, rows[batch.rows], batch, visitors, layers, attention)
            lap = clock.lap()
            if budget.learn(allowed, batch.tokens, lap):
                # At once: a run that is killed now goes on with the same batches.
                write_memo(BUDGET_MEMO, _speed_key(lm), budget.best())
            seconds, padded = seconds + lap, padded + batch.width * len(batch.rows)
            advance(batch.tokens, note=f"{batch.tokens / max(lap, 1e-9):,.0f} tokens/s")
    return PassStats(len(rows), sum(lengths), padded, seconds, budget.best())


def _budget_for(lm: LM, tokens: int) -> TokenBudget:
    """The budget of a set of so many tokens: the same one in every run on this machine."""
    if tokens < SMALL_SET_TOKENS:
        return TokenBudget(fixed=default_budget())
    known = read_memo(BUDGET_MEMO, _speed_key(lm))
    return TokenBudget(fixed=known if type(known) is int and known > 0 else None)


def _speed_key(lm: LM) -> str:
    """All that the speed of a batch hangs on."""
    place = (lm.digest, lm.device, lm.dtype, lm.attention, torch.get_num_threads())
    return digest_json([*place, torch.__version__])


def _forward_batch(
    lm: LM, fed: TokenRows, rows: NDArray[np.int64], batch: TokenBatch, visitors: Sequence[Visitor],
    layers: tuple[int, ...], attention: bool,
) -> None:  # fmt: skip
    """One batch through the model, each layer shown as it appears."""
    ids, real = pad([fed.rows[i] for i in rows], lm.pad_id)
    ids, real = ids.to(lm.device), real.to(lm.device)
    seen = VisitedBatch(
        rows,
        _counted_tokens(real, fed.first_counted[rows]),
        _mark_weights(lm, fed, rows, ids, real),
    )

    def visit(layer: int, hidden: Tensor, weights: Tensor | None) -> None:
        for visitor in visitors:
            if layer in visitor.layers:
                visitor.visit(layer, hidden, weights, seen)

    # Right padding is invisible to causal models: no token looks to its right. Without a mask
    # the kernels are faster, and attention weights of padded places are never used.
    shown = torch.ones_like(real) if lm.kind == "causal" else real
    visit_layers(lm, ids, shown, layers, visit, attention=attention)
    for visitor in visitors:
        visitor.end(seen)


def _counted_tokens(real: Tensor, start: NDArray[np.int64]) -> Tensor:
    """The real tokens that count: those not yet counted in an earlier window."""
    if not start.any():
        return real
    place = torch.arange(real.shape[1], device=real.device)
    return real & (place >= torch.as_tensor(start, device=real.device)[:, None])


def _mark_weights(
    lm: LM, fed: TokenRows, rows: NDArray[np.int64], ids: Tensor, real: Tensor
) -> Tensor | None:
    """1.0 at the marked positions; at the mask tokens where nothing was marked by the feed."""
    if not any(len(fed.marks[i]) for i in rows):
        mask_id = lm.tokenizer.mask_token_id
        return None if mask_id is None else ((ids == mask_id) & real).float()
    marks = torch.zeros(real.shape, dtype=torch.float32)
    for place, row in enumerate(rows):
        marks[place, torch.as_tensor(fed.marks[row])] = 1.0
    return marks.to(real.device)
