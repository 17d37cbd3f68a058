"""One pass of the model over all rows, shown to any number of visitors.

Visitors see the layers of each batch as they are computed and keep only what they need. Long texts
are read in windows, whose vectors are combined into one vector per text again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.console import Console
from cutaway.core.digest import digest_json
from cutaway.core.errors import BadSpec
from cutaway.extract.request import ExtractionRequest, TokenRows
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
from cutaway.models.read_texts import TOKEN_POOLS, pad_places, pooler_extra
from cutaway.models.tokens import pad
from cutaway.pool import POOLERS, Pooler, WindowRule, pooler

STORED_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class VisitedBatch:
    """The batch that is going through the model."""

    rows: NDArray[np.int64]
    """The numbers of its rows."""
    mask: Tensor
    """Real tokens that count (batch seq)."""
    marks: Tensor | None
    """1.0 at marked tokens (batch seq)."""
    places: Tensor | None = None
    """The message that each token belongs to (batch seq); None for plain text."""


class Visitor(Protocol):
    """Sees the layers it asks for: `visit` for each layer of a batch, `end` after the batch."""

    layers: tuple[int, ...]
    attention: bool
    """Whether it needs attention weights, which only the eager kernel returns."""

    def visit(
        self, layer: int, hidden: Tensor, weights: Tensor | None, batch: VisitedBatch
    ) -> None: ...

    def end(self, batch: VisitedBatch) -> None: ...


RowSink = Callable[[NDArray[np.int64], Mapping[str, Tensor]], None]
RaggedSink = Callable[[NDArray[np.int64], list[int], Mapping[str, Tensor]], None]


@dataclass
class PoolingVisitor:
    """Pools every requested layer on the device and passes the small vectors to `sink`."""

    lm: LM
    request: ExtractionRequest
    columns: Mapping[str, tuple[str, str]]
    sink: RowSink
    ragged_sink: RaggedSink
    _pooled: dict[str, Tensor] = field(default_factory=dict)
    _tokens: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sources = {source for source, _ in self.columns.values()}
        layers = {int(source) for source in sources if source.isdigit()}
        heads = {self.lm.layers} if any(not source.isdigit() for source in sources) else set()
        self.layers = tuple(sorted(layers | heads))
        self.poolers = {p: pooler(p) for _, p in self.columns.values() if p not in TOKEN_POOLS}
        self.attention = any(p.needs == "attention" for p in self.poolers.values())

    def visit(
        self, layer: int, hidden: Tensor, weights: Tensor | None, batch: VisitedBatch
    ) -> None:
        """Pool this layer for every column that is made from it."""
        for name, (source, pool) in self.columns.items():
            if source == str(layer):
                self._pool_layer(name, pool, hidden, weights, batch)
            elif layer == self.lm.layers and not source.isdigit():
                self._pool_head(name, source, self.poolers[pool], hidden, batch)

    def end(self, batch: VisitedBatch) -> None:
        """Pass the batch on."""
        if self._pooled:
            self.sink(batch.rows, self._pooled)
        if self._tokens:
            counts: list[int] = self._stored_tokens(batch).sum(dim=1).tolist()
            self.ragged_sink(batch.rows, counts, self._tokens)
        self._pooled, self._tokens = {}, {}

    def _stored_tokens(self, batch: VisitedBatch) -> Tensor:
        """The tokens that ragged columns store: the marked ones, or all that count."""
        marked = any(pool == "marks" for _, pool in self.columns.values())
        return batch.marks.bool() if marked and batch.marks is not None else batch.mask

    def _pool_layer(
        self, name: str, pool: str, hidden: Tensor, weights: Tensor | None, batch: VisitedBatch
    ) -> None:
        if pool in TOKEN_POOLS:
            self._tokens[name] = self._to_stored(hidden[self._stored_tokens(batch)])
            return
        chosen = self.poolers[pool]
        extra = pooler_extra(self.lm, chosen, batch.mask, batch.marks, weights)
        tokens = chosen.tokens(batch.mask, batch.places)
        self._pooled[name] = self._to_stored(chosen(hidden, tokens, extra))

    def _pool_head(
        self, name: str, head: str, chosen: Pooler, hidden: Tensor, batch: VisitedBatch
    ) -> None:
        if not chosen.single_token:
            able = ", ".join(row.name for row in POOLERS.values() if row.single_token)
            raise BadSpec(
                f"{head!r} is computed at one token: pool must be one of {able}, or a quantile (as "
                f"q0.4), got {chosen.name!r}."
            )
        extra = pooler_extra(self.lm, chosen, batch.mask, batch.marks, None)
        tokens = chosen.tokens(batch.mask, batch.places)
        value = HEAD_OUTPUTS[head](self.lm, chosen(hidden, tokens, extra))
        # Token numbers and log-partitions need more than half precision.
        self._pooled[name] = self._to_stored(value) if head == "final" else value.float().cpu()

    def _to_stored(self, value: Tensor) -> Tensor:
        return value.to(STORED_DTYPES[self.request.stored_dtype]).cpu()


def _logits(lm: LM, state: Tensor) -> Tensor:
    return lm.unembed(lm.final_norm(state)).float()


def _next_token(lm: LM, state: Tensor) -> Tensor:
    """Most likely token, its probability, the entropy in nats: three columns."""
    logits = _logits(lm, state)
    best, token = logits.max(dim=-1)
    # Relative to the largest: float32's log_softmax over 262,144 tokens is wrong by up to 2e-5.
    shifted = logits - best[:, None]
    weights = shifted.exp()
    total = weights.sum(dim=-1)
    entropy = total.log() - (weights * shifted).sum(dim=-1) / total
    return torch.stack([token.to(logits.dtype), 1 / total, entropy.clamp(min=0)], dim=1)


HEAD_OUTPUTS: dict[str, Callable[[LM, Tensor], Tensor]] = {
    "final": lambda lm, state: lm.head_features(state),
    "logz": lambda lm, state: _logits(lm, state).logsumexp(dim=-1, keepdim=True),
    "next": _next_token,
}


def visited_layers(visitors: Iterable[Visitor]) -> tuple[int, ...]:
    """Every layer that a visitor asks for, in order."""
    return tuple(sorted({layer for visitor in visitors for layer in visitor.layers}))


def need_window_poolers(pools: Iterable[str]) -> None:
    """BadSpec unless every pooler has a window rule."""
    for name in pools:
        if name in TOKEN_POOLS or pooler(name).window_rule is None:
            able = ", ".join(row.name for row in POOLERS.values() if row.window_rule)
            raise BadSpec(
                f"Pooler {name!r} can't be used with sliding windows. Use one of: {able}."
            )


@dataclass
class WindowCombiner:
    """Collects the windows of each text and passes one row per complete text on to `sink`."""

    token_rows: TokenRows
    sink: RowSink
    _windows: dict[int, dict[int, dict[str, Tensor]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._count = np.bincount(self.token_rows.text_index)
        counted = np.array(self.token_rows.lengths) - self.token_rows.first_counted
        self._tokens = torch.as_tensor(counted, dtype=torch.float64)

    def __call__(self, rows: NDArray[np.int64], columns: Mapping[str, Tensor]) -> None:
        """Take a batch of windows; pass on the texts that are complete now."""
        done = []
        for place, row in enumerate(rows.tolist()):
            text = int(self.token_rows.text_index[row])
            windows = self._windows.setdefault(text, {})
            windows[row] = {name: value[place] for name, value in columns.items()}
            if len(windows) == self._count[text]:
                done.append(text)
        if done:
            combined = {n: torch.stack([self._combine(t, n) for t in done]) for n in columns}
            self.sink(np.array(done), combined)
            for text in done:
                del self._windows[text]

    def _combine(self, text: int, column: str) -> Tensor:
        rows = sorted(self._windows[text])
        values = torch.stack([self._windows[text][row][column] for row in rows])
        rule: WindowRule | None = pooler(column.partition("/")[2]).window_rule
        assert rule is not None
        return rule(values.double(), self._tokens[rows]).to(values.dtype)


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
    return digest_json([*place, lm.quantise, torch.__version__])


def _forward_batch(
    lm: LM, token_rows: TokenRows, rows: NDArray[np.int64], visitors: Sequence[Visitor]
) -> None:
    """One batch through the model; visitors see each layer as it is computed."""
    ids, real = pad([token_rows.rows[i] for i in rows], lm.pad_id)
    ids, real = ids.to(lm.device), real.to(lm.device)
    counted = _counted_tokens(real, token_rows.first_counted[rows])
    marks, places = _mark_weights(lm, token_rows, rows, ids, real), token_rows.places
    codes = None if places is None else [places[i] for i in rows]
    batch = VisitedBatch(rows, counted, marks, pad_places(codes, real))

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
