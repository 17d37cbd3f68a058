"""Pooled states of many texts in memory: what `lm.read` gives a notebook."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.core.errors import BadSpec
from cutaway.models.lm import LM
from cutaway.models.read import need_layers, visit_layers
from cutaway.models.tokens import pad, tokenize
from cutaway.pool import Pooler, pooler

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
    """{layer: (n, d)} in the order of the texts; for several poolers {pooler: {layer: (n, d)}}.

    `layers` is "all", a number, numbers, or "0,6,12". Texts run in batches of similar length
    of about `batch_tokens` tokens. For more texts than memory holds, use a recipe: it keeps
    what it reads on disk.
    """
    if isinstance(texts, str):
        raise BadSpec(f"texts must be a list of texts, got one text {texts[:40]!r}: put it in [].")
    wanted = parse_layers(lm, layers)
    poolers = [pooler(p) for p in ([pool] if isinstance(pool, str | Pooler) else pool)]
    rows = tokenize(lm, texts, pairs=pairs, prompt=prompt, limit=limit).rows
    blank = torch.empty(len(rows), lm.width, dtype=getattr(torch, lm.dtype))
    out = {p.name: {layer: torch.empty_like(blank) for layer in wanted} for p in poolers}
    # no_grad, not inference_mode: what comes out may be trained on.
    with torch.no_grad():
        for batch in _batches([len(row) for row in rows], batch_tokens):
            _read_batch(lm, [rows[i] for i in batch], batch, wanted, poolers, out)
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
    """Row numbers in batches of similar length; longest first, so that memory shows at once."""
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
    """Pool one batch on the device and put the vectors in their places."""
    ids, mask = (x.to(lm.device) for x in pad(rows, lm.pad_id))

    def visit(layer: int, hidden: Tensor, weights: Tensor | None) -> None:
        for p in poolers:
            extra = _pooler_extra(lm, p, ids, mask, weights)
            out[p.name][layer][places] = p(hidden, mask, extra).to(out[p.name][layer])

    visit_layers(
        lm, ids, mask, layers, visit, attention=any(p.needs == "attention" for p in poolers)
    )


def _pooler_extra(
    lm: LM, p: Pooler, ids: Tensor, mask: Tensor, weights: Tensor | None
) -> Tensor | None:
    """What a pooler needs besides states and mask."""
    if p.needs == "marks":
        return (ids == need_mask_id(lm, p.name)).float()
    if p.needs == "attention":
        return attention_per_token(lm, mask, weights, p.head)
    return None


def attention_per_token(lm: LM, mask: Tensor, weights: Tensor | None, head: int | None) -> Tensor:
    """How much one token looks at each token (batch, seq): the last real one in causal models,
    the first in masked ones; one head, or the mean over heads. Layer 0, which no attention made,
    counts every token the same."""
    if weights is None:
        return mask.float()
    if head is not None and head >= weights.shape[1]:
        raise BadSpec(f"attn:{head} is out of range: heads are 0..{weights.shape[1] - 1}.")
    looks = weights.mean(dim=1) if head is None else weights[:, head]
    real = mask.long()
    first, last = real.argmax(dim=1), mask.shape[1] - 1 - real.flip(1).argmax(dim=1)
    looker = last if lm.kind == "causal" else first
    return looks[torch.arange(len(looks), device=looks.device), looker] * mask


def need_mask_id(lm: LM, pool: str) -> int:
    """The id of the mask token; BadSpec when there is none."""
    if lm.tokenizer.mask_token_id is None:
        raise BadSpec(f"Pooler {pool!r} needs a mask token, and {lm.name!r} has none.")
    return int(lm.tokenizer.mask_token_id)
