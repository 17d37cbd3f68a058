"""Who watches the layers go by: visitors take what they need of a batch, and keep only that."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.core.errors import BadSpec
from cutaway.extract.request import ExtractionRequest
from cutaway.models.lm import LM
from cutaway.models.read_texts import attention_per_token, need_mask_id
from cutaway.pool import Pooler, pooler

STORED_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
# Poolers that pick one token: the norm and the head can wait until after the pick.
PICKS = ("first", "last", "cls", "mask", "q")


@dataclass(frozen=True)
class VisitedBatch:
    """One batch on its way: which rows, which of their tokens count, which are marked."""

    rows: NDArray[np.int64]
    mask: Tensor
    """Real tokens that count (batch seq)."""
    marks: Tensor | None
    """1.0 at marked tokens (batch seq)."""


class Visitor(Protocol):
    """Anything that wants to see layers: says which, is shown each, is told when a batch ends."""

    layers: tuple[int, ...]
    attention: bool

    def visit(
        self, layer: int, hidden: Tensor, weights: Tensor | None, seen: VisitedBatch
    ) -> None: ...

    def end(self, seen: VisitedBatch) -> None: ...


RowSink = Callable[[NDArray[np.int64], Mapping[str, Tensor]], None]


@dataclass
class PoolingVisitor:
    """Pools every wanted layer on the device and hands the small vectors to `sink`."""

    lm: LM
    ask: ExtractionRequest
    columns: Mapping[str, tuple[str, str]]
    sink: RowSink
    ragged: Callable[[NDArray[np.int64], list[int], Mapping[str, Tensor]], None]
    _batch: dict[str, Tensor] = field(default_factory=dict)
    _tokens: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wanted = {layer for layer, _ in self.columns.values()}
        numbers = {int(w) for w in wanted if w.isdigit()}
        heads = {w for w in wanted if not w.isdigit()}
        self.layers = tuple(sorted(numbers | ({self.lm.layers} if heads else set())))
        self.poolers = {p: pooler(p) for _, p in self.columns.values() if p not in ("all", "marks")}
        self.attention = any(p.needs == "attention" for p in self.poolers.values())

    def visit(self, layer: int, hidden: Tensor, weights: Tensor | None, seen: VisitedBatch) -> None:
        """Pool this layer for every column that asks for it."""
        for name, (source, pool) in self.columns.items():
            if source == str(layer):
                self._keep(name, pool, hidden, weights, seen)
            elif layer == self.lm.layers and not source.isdigit():
                self._keep_head(name, source, pool, hidden, seen)

    def end(self, seen: VisitedBatch) -> None:
        """Hand the batch over."""
        if self._batch:
            self.sink(seen.rows, self._batch)
        if self._tokens:
            self.ragged(seen.rows, _token_counts(self._which(seen)), self._tokens)
        self._batch, self._tokens = {}, {}

    def _which(self, seen: VisitedBatch) -> Tensor:
        """The tokens that ragged columns keep: the marked ones, or all that count."""
        pools = {pool for _, pool in self.columns.values()}
        return seen.marks.bool() if "marks" in pools and seen.marks is not None else seen.mask

    def _keep(
        self, name: str, pool: str, hidden: Tensor, weights: Tensor | None, seen: VisitedBatch
    ) -> None:
        if pool in ("all", "marks"):
            self._tokens[name] = self._stored(hidden[self._which(seen)])
            return
        chosen = self.poolers[pool]
        extra = _pooler_extra(self.lm, chosen, weights, seen)
        self._batch[name] = self._stored(chosen(hidden, seen.mask, extra))

    def _keep_head(
        self, name: str, head: str, pool: str, hidden: Tensor, seen: VisitedBatch
    ) -> None:
        if not pool.startswith(PICKS):
            raise BadSpec(
                f"{head!r} is taken at one token: pool must be first, last, cls, mask or q0.4, "
                f"got {pool!r}."
            )
        chosen = self.poolers[pool]
        picked = chosen(hidden, seen.mask, _pooler_extra(self.lm, chosen, None, seen))
        value = HEAD_OUTPUTS[head](self.lm, picked)
        # Token numbers and log-partitions don't survive half precision.
        self._batch[name] = self._stored(value) if head == "final" else value.float().cpu()

    def _stored(self, value: Tensor) -> Tensor:
        return value.to(STORED_DTYPES[self.ask.stored_dtype]).cpu()


def _token_counts(which: Tensor) -> list[int]:
    return which.sum(dim=1).tolist()


def _pooler_extra(
    lm: LM, chosen: Pooler, weights: Tensor | None, seen: VisitedBatch
) -> Tensor | None:
    """What the pooler needs besides states and mask."""
    if chosen.needs == "marks":
        need_mask_id(lm, chosen.name)
        return seen.marks
    if chosen.needs != "attention":
        return None
    return attention_per_token(lm, seen.mask, weights, chosen.head)


def _final(lm: LM, state: Tensor) -> Tensor:
    return lm.head_features(state)


def _logits(lm: LM, state: Tensor) -> Tensor:
    return lm.unembed(lm.final_norm(state)).float()


def _log_partition(lm: LM, state: Tensor) -> Tensor:
    return _logits(lm, state).logsumexp(dim=-1, keepdim=True)


def _next_token(lm: LM, state: Tensor) -> Tensor:
    """Likeliest token, its probability, the entropy in nats: three columns."""
    logp = _logits(lm, state).log_softmax(dim=-1)
    best, token = logp.max(dim=-1)
    entropy = -(logp.exp() * logp).sum(dim=-1)
    return torch.stack([token.to(logp.dtype), best.exp(), entropy], dim=1)


HEAD_OUTPUTS: dict[str, Callable[[LM, Tensor], Tensor]] = {
    "final": _final,
    "logz": _log_partition,
    "next": _next_token,
}


def visited_layers(visitors: Iterable[Visitor]) -> tuple[int, ...]:
    """Every layer somebody wants, in order."""
    return tuple(sorted({layer for visitor in visitors for layer in visitor.layers}))
