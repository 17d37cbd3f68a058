"""Visitors see the layers of each batch during the forward pass and keep only what they need.

Long texts are read in windows, whose vectors are combined into one vector per text again.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.core.errors import BadSpec
from cutaway.extract.request import ExtractionRequest, TokenRows
from cutaway.models.lm import LM
from cutaway.models.read_texts import pooler_extra
from cutaway.pool import POOLERS, Pooler, WindowRule, pooler

STORED_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
TOKEN_POOLS = ("all", "marks")
"""Names in place of a pooler that store every token, or every marked token."""


@dataclass(frozen=True)
class VisitedBatch:
    """The batch that is going through the model."""

    rows: NDArray[np.int64]
    """The numbers of its rows."""
    mask: Tensor
    """Real tokens that count (batch seq)."""
    marks: Tensor | None
    """1.0 at marked tokens (batch seq)."""


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
        self._pooled[name] = self._to_stored(chosen(hidden, batch.mask, extra))

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
        value = HEAD_OUTPUTS[head](self.lm, chosen(hidden, batch.mask, extra))
        # Token numbers and log-partitions need more than half precision.
        self._pooled[name] = self._to_stored(value) if head == "final" else value.float().cpu()

    def _to_stored(self, value: Tensor) -> Tensor:
        return value.to(STORED_DTYPES[self.request.stored_dtype]).cpu()


def _logits(lm: LM, state: Tensor) -> Tensor:
    return lm.unembed(lm.final_norm(state)).float()


def _next_token(lm: LM, state: Tensor) -> Tensor:
    """Most likely token, its probability, the entropy in nats: three columns."""
    log_probs = _logits(lm, state).log_softmax(dim=-1)
    best, token = log_probs.max(dim=-1)
    entropy = -(log_probs.exp() * log_probs).sum(dim=-1)
    return torch.stack([token.to(log_probs.dtype), best.exp(), entropy], dim=1)


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
