"""Hidden states of texts, in memory: what `lm.read` returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from cutaway.core.errors import BadData, BadSpec
from cutaway.core.messages import parse_conversation
from cutaway.models.hooks import need_layers, visit_layers
from cutaway.models.token_states import SiteChoice, TokenStates, read_token_states
from cutaway.models.tokens import Tokenized, pad, tokenize
from cutaway.pool import ALL_CONTENT, PLACE_CODES, Pooler, needs_attention, pooler

if TYPE_CHECKING:
    from cutaway.models.lm import LM

TOKEN_POOLS = ("all", "marks")
"""Names in place of a pooler that store every token, or every marked token."""
LayerChoice = str | int | Sequence[int]
PooledStates = dict[int, Float[Tensor, "n d"]]


def read_states(
    lm: LM,
    texts: str | Sequence[Any],
    *,
    layers: LayerChoice = "all",
    pool: str | Pooler | Sequence[str | Pooler] | None = "last",
    sites: SiteChoice = (),
    pairs: str | Sequence[str] | None = None,
    prompt: str = "",
    limit: int | None = None,
    batch_tokens: int = 1024,
) -> PooledStates | dict[str, PooledStates] | TokenStates:
    """States in the order of the texts, pooled or (`pool=None`) per token; see `LM.read`.

    For more texts than fit in memory use `extract`, which keeps the states on disk.
    """
    numbers = parse_layers(lm, layers)
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, Iterable):
        raise BadData(f"texts must be a text or a list of texts, got {texts!r}.")
    texts = list(texts)
    pairs = [pairs] if isinstance(pairs, str) else pairs
    if sites and pool is not None:
        raise BadSpec(f"sites={sites!r} are read per token: they need pool=None, got {pool!r}.")
    some = [pool] if isinstance(pool, str | Pooler) else pool or ()
    poolers = [pooler(p) for p in some]
    messages = [
        None if isinstance(one, str) else parse_conversation(one, f"text {number}")
        for number, one in enumerate(texts, start=1)
    ]
    plain = ["" if given else one for one, given in zip(texts, messages, strict=True)]
    tokens = tokenize(
        lm, plain, pairs=pairs, messages=messages, prompt=prompt, limit=limit,
        with_offsets=pool is None,
    )  # fmt: skip
    if pool is None:
        batches = _batches([len(row) for row in tokens.rows], batch_tokens)
        return read_token_states(lm, tokens, numbers, batches, sites)
    need_places(poolers, tokens)
    rows, places = tokens.rows, tokens.places
    blank = torch.empty(len(rows), lm.width, dtype=getattr(torch, lm.dtype))
    out = {p.name: {layer: torch.empty_like(blank) for layer in numbers} for p in poolers}
    # no_grad, not inference_mode: the states may be trained on.
    with torch.no_grad():
        for batch in _batches([len(row) for row in rows], batch_tokens):
            codes = None if places is None else [places[i] for i in batch]
            _read_batch(lm, [rows[i] for i in batch], codes, batch, numbers, poolers, out)
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
    codes: list[NDArray[np.int8]] | None,
    places: list[int],
    layers: list[int],
    poolers: list[Pooler],
    out: dict[str, PooledStates],
) -> None:
    """Pool one batch on the device and write the vectors to their places in `out`."""
    ids, mask = (x.to(lm.device) for x in pad(rows, lm.pad_id))
    mask_id = lm.tokenizer.mask_token_id
    marks = None if mask_id is None else (ids == mask_id).float()
    roles = pad_places(codes, mask)

    def visit(layer: int, hidden: Tensor, weights: Tensor | None) -> None:
        for p in poolers:
            extra = pooler_extra(lm, p, mask, marks, weights)
            pooled = p(hidden, p.tokens(mask, roles), extra)
            out[p.name][layer][places] = pooled.to(out[p.name][layer])

    visit_layers(lm, ids, mask, layers, visit, attention=needs_attention(poolers))


def need_places(pools: Iterable[str | Pooler], tokens: Tokenized) -> None:
    """BadData for the first conversation without a message that a pooler reads."""
    for chosen in (pooler(p) for p in pools if p not in TOKEN_POOLS):
        if chosen.place is None:
            continue
        if tokens.places is None or tokens.uncertain is None:
            chosen.tokens(torch.ones(0, 0, dtype=torch.bool), None)
            continue
        codes = [PLACE_CODES[role] for role in chosen.roles]
        for row, places in enumerate(tokens.places):
            if tokens.uncertain[row] & set(chosen.roles):
                raise BadData(
                    f"Pooler {chosen.name!r}: the chat template changes the content of a message "
                    f"in row {row + 1}, so its tokens can't be distinguished from the "
                    f"template's. Use {chosen.name.partition('@')[0]!r}, which reads all tokens."
                )
            if not np.isin(places, codes).any():
                raise BadData(
                    f"Pooler {chosen.name!r}: row {row + 1} has no such message. Leave the row "
                    f"out, or use {chosen.name.partition('@')[0]}@{ALL_CONTENT}."
                )


def pad_places(codes: list[NDArray[np.int8]] | None, mask: Tensor) -> Tensor | None:
    """The places of the tokens of a batch padded on the right, as one tensor; 0 at padding."""
    if codes is None:
        return None
    padded = np.zeros(tuple(mask.shape), np.int64)
    for row, places in enumerate(codes):
        padded[row, : len(places)] = places
    return torch.from_numpy(padded).to(mask.device)


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
