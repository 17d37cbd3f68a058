"""Pooled hidden states of texts, in memory: what `lm.read` returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.core.errors import BadSpec
from cutaway.models.hooks import need_layers, visit_layers
from cutaway.models.tokens import pad, tokenize
from cutaway.pool import Pooler, needs_attention, pooler

if TYPE_CHECKING:
    from cutaway.models.lm import LM

LayerChoice = str | int | Sequence[int]
PooledStates = dict[int, Float[Tensor, "n d"]]


def read_pooled_states(
    lm: LM,
    texts: Sequence[str],
    *,
    layers: LayerChoice = "all",
    pool: str | Pooler | Sequence[str | Pooler] = "last",
    pairs: Sequence[str] | None = None,
    prompt: str = "",
    limit: int | None = None,
    batch_tokens: int = 1024,
) -> PooledStates | dict[str, PooledStates]:
    """Pooled states in the order of the texts; see `LM.read`.

    For more texts than fit in memory use `extract`, which keeps the states on disk.
    """
    if isinstance(texts, str):
        raise BadSpec(f"texts must be a list of texts, got one text {texts[:40]!r}: put it in [].")
    numbers = parse_layers(lm, layers)
    poolers = [pooler(p) for p in ([pool] if isinstance(pool, str | Pooler) else pool)]
    rows = tokenize(lm, texts, pairs=pairs, prompt=prompt, limit=limit).rows
    blank = torch.empty(len(rows), lm.width, dtype=getattr(torch, lm.dtype))
    out = {p.name: {layer: torch.empty_like(blank) for layer in numbers} for p in poolers}
    # no_grad, not inference_mode: the states may be trained on.
    with torch.no_grad():
        for batch in _batches([len(row) for row in rows], batch_tokens):
            _read_batch(lm, [rows[i] for i in batch], batch, numbers, poolers, out)
    return out[poolers[0].name] if isinstance(pool, str | Pooler) else out


def parse_layers(lm: LM, layers: LayerChoice) -> list[int]:
    """Layer numbers from "all", a number, numbers or "0,6,12"; BadSpec when out of range."""
    if layers == "all":
        return list(range(lm.layers + 1))
    if isinstance(layers, int):
        return need_layers(lm, [layers])
    parts = layers.split(",") if isinstance(layers, str) else layers
    try:
        return need_layers(lm, [int(part) for part in parts])
    except ValueError:
        raise BadSpec(
            f"layers must be 'all', a number, or numbers such as '0,6,12', got {layers!r}."
        ) from None


def _batches(lengths: list[int], budget: int) -> Iterator[list[int]]:
    """Row numbers in batches of similar length; the longest first, where memory peaks."""
    batch: list[int] = []
    for row in np.argsort([-length for length in lengths], kind="stable"):
        if batch and lengths[batch[0]] * (len(batch) + 1) > budget:
            yield batch
            batch = []
        batch.append(int(row))
    if batch:
        yield batch


def _read_batch(
    lm: LM,
    rows: list[list[int]],
    places: list[int],
    layers: list[int],
    poolers: list[Pooler],
    out: dict[str, PooledStates],
) -> None:
    """Pool one batch on the device and write the vectors to their places in `out`."""
    ids, mask = (x.to(lm.device) for x in pad(rows, lm.pad_id))
    mask_id = lm.tokenizer.mask_token_id
    marks = None if mask_id is None else (ids == mask_id).float()

    def visit(layer: int, hidden: Tensor, weights: Tensor | None) -> None:
        for p in poolers:
            extra = pooler_extra(lm, p, mask, marks, weights)
            out[p.name][layer][places] = p(hidden, mask, extra).to(out[p.name][layer])

    visit_layers(lm, ids, mask, layers, visit, attention=needs_attention(poolers))


def pooler_extra(
    lm: LM, row: Pooler, mask: Tensor, marks: Tensor | None, weights: Tensor | None
) -> Tensor | None:
    """The `extra` argument that the pooler needs; BadSpec when the model can't provide it."""
    if row.needs == "marks" and lm.tokenizer.mask_token_id is None:
        raise BadSpec(f"Pooler {row.name!r} needs a mask token, and {lm.name!r} has none.")
    if row.needs == "marks":
        return marks
    return attention_per_token(lm, mask, weights, row.head) if row.needs == "attention" else None


def attention_per_token(lm: LM, mask: Tensor, weights: Tensor | None, head: int | None) -> Tensor:
    """The attention that each token receives (batch, seq) from the last real token in causal
    models and from the first in masked ones; one head, or the mean over heads. At layer 0, which
    no attention precedes, every token counts the same."""
    if weights is None:
        return mask.float()
    if head is not None and head >= weights.shape[1]:
        raise BadSpec(f"attn:{head} is out of range: heads are 0..{weights.shape[1] - 1}.")
    attention = weights.mean(dim=1) if head is None else weights[:, head]
    real = mask.long()
    first, last = real.argmax(dim=1), mask.shape[1] - 1 - real.flip(1).argmax(dim=1)
    query = last if lm.kind == "causal" else first
    return attention[torch.arange(len(attention), device=attention.device), query] * mask
