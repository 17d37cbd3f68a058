"""Texts to rows of token ids, and rows to padded batches.

Special tokens are what the tokenizer adds by default to a text alone. Pairs go through the
tokenizer's own pair form for masked models; causal models have none that they were trained on,
so the two texts are joined by a line break. A prompt is tokenised together with the text it
follows, and its tokens are never cut: a document that is too long loses its beginning.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from cutaway.core.errors import BadData, BadSpec
from cutaway.models.lm import LM

TruncationSide = Literal["right", "left"]
PAIR_SEPARATOR = "\n"
# The fast tokenizer keeps offsets, words and masks of a whole call, some 300 bytes a token, until
# the ids are taken out: texts go through it some at a time.
TOKENIZE_BATCH = 512


@dataclass(frozen=True)
class Tokenized:
    """Token ids per text, how many tokens each lost, and which texts had none of their own."""

    rows: list[list[int]]
    truncated: NDArray[np.int64]
    empty: NDArray[np.bool_]
    """The text gave no token at all; its row is the model's start or end token."""


def tokenize(
    lm: LM,
    texts: Sequence[str],
    *,
    pairs: Sequence[str] | None = None,
    prompt: str = "",
    limit: int | None = None,
    cut: TruncationSide = "right",
) -> Tokenized:
    """One row of ids per text, at most `limit` long (the model's context unless said).

    `cut` is the side where long texts lose tokens; with a prompt it is always the beginning.
    """
    limit = lm.context if limit is None else limit
    if cut not in ("right", "left"):
        raise BadSpec(f"cut must be 'right' or 'left', got {cut!r}.")
    firsts, seconds = _tokenizer_inputs(lm, texts, pairs, prompt)
    rows = _encode(lm, firsts, seconds) if firsts else []
    lost = np.array([max(len(row) - limit, 0) for row in rows], dtype=np.int64)
    for i in np.flatnonzero(lost):
        second = None if seconds is None else seconds[i]
        rows[i] = _truncate(lm, firsts[i], second, len(prompt), limit, cut)
    empty = np.array([not row for row in rows], dtype=np.bool_)
    for i in np.flatnonzero(empty):
        rows[i] = [_empty_text_token(lm, int(i))]
    return Tokenized(rows, lost, empty)


def pad(
    rows: Sequence[Sequence[int]], pad_id: int, side: Literal["right", "left"] = "right"
) -> tuple[Int[Tensor, "batch seq"], Bool[Tensor, "batch seq"]]:
    """The rows as one block of ids, and which of them are real."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    width = int(lengths.max(initial=0))
    place = np.arange(width)[None, :]
    mask = place < lengths[:, None] if side == "right" else place >= width - lengths[:, None]
    ids = np.full(mask.shape, pad_id, dtype=np.int64)
    ids[mask] = np.fromiter((token for row in rows for token in row), np.int64, lengths.sum())
    return torch.from_numpy(ids), torch.from_numpy(mask)


def make_token_type_ids(
    lm: LM, ids: Int[Tensor, "batch seq"], mask: Bool[Tensor, "batch seq"]
) -> Int[Tensor, "batch seq"]:
    """Token types: 1 behind the first separator, 0 elsewhere, as the tokenizer types pairs.

    Read off the ids, so that a row of ids is all a batch needs. A text that itself contains
    the separator token counts as two from there on.
    """
    separator: Tensor = (ids == lm.tokenizer.sep_token_id) & mask
    behind = separator.cumsum(dim=1) - separator.long()
    return ((behind > 0) & mask).long()


def _tokenizer_inputs(
    lm: LM, texts: Sequence[str], pairs: Sequence[str] | None, prompt: str
) -> tuple[list[str], list[str] | None]:
    """What goes to the tokenizer as first and second text; the prompt ends the last of them."""
    if pairs is None:
        return [text + prompt for text in texts], None
    if len(pairs) != len(texts):
        raise BadData(f"{len(texts)} texts but {len(pairs)} second texts: one each is needed.")
    if lm.kind == "causal":
        joined = zip(texts, pairs, strict=True)
        return [f"{one}{PAIR_SEPARATOR}{two}{prompt}" for one, two in joined], None
    return list(texts), [pair + prompt for pair in pairs]


def _encode(lm: LM, firsts: list[str], seconds: list[str] | None) -> list[list[int]]:
    """Ids of all texts, special tokens included."""
    rows: list[list[int]] = []
    for start in range(0, len(firsts), TOKENIZE_BATCH):
        some = slice(start, start + TOKENIZE_BATCH)
        rows += _encode_some(lm, firsts[some], None if seconds is None else seconds[some])
    return rows


def _encode_some(lm: LM, firsts: list[str], seconds: list[str] | None) -> list[list[int]]:
    """Ids of these texts in one call of the fast tokenizer."""
    got = lm.tokenizer(
        firsts,
        seconds,
        padding=False,
        truncation=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )
    rows: list[list[int]] = got["input_ids"]
    _need_known_tokens(lm, firsts, rows)
    return rows


def _need_known_tokens(lm: LM, texts: list[str], rows: list[list[int]]) -> None:
    """BadData for a text with a token that the model has no embedding for."""
    known = lm.module.get_submodule(lm.anatomy.embeddings).weight.shape[0]
    for text, row in zip(texts, rows, strict=True):
        if row and max(row) >= known:
            token = lm.tokenizer.convert_ids_to_tokens(max(row))
            raise BadData(
                f"The text {text[:60]!r} has the token {token!r} ({max(row)}), but {lm.name!r} has "
                f"only {known:,} embeddings (ids from 0 on). Take it out of the text."
            )


def _truncate(
    lm: LM, first: str, second: str | None, prompt: int, limit: int, cut: TruncationSide
) -> list[int]:
    """One row without the tokens that are too many; special and prompt tokens stay."""
    got = lm.tokenizer(first, second, return_offsets_mapping=True, verbose=False)
    owner = [-1 if side is None else side for side in got.sequence_ids(0)]
    last = 0 if second is None else 1
    ours = [i for i, side in enumerate(owner) if side == last]
    if prompt:
        ours = ours[: _count_before_prompt(got, ours, len(second or first) - prompt)]
    sides = [ours] if second is None else [[i for i, s in enumerate(owner) if s == 0], ours]
    drop = _positions_to_drop(sides, len(owner) - limit, "left" if prompt else cut)
    if len(owner) - len(drop) > limit:
        raise BadSpec(
            f"max_tokens {limit} leaves no room: the prompt and special tokens alone take "
            f"{len(owner) - sum(map(len, sides))} tokens. Raise it or shorten the prompt."
        )
    return [token for i, token in enumerate(got["input_ids"]) if i not in drop]


def _count_before_prompt(got: Any, places: list[int], border: int) -> int:
    """How many of these tokens lie before the prompt; one across the border belongs to it."""
    spans = got["offset_mapping"]
    return next((n for n, i in enumerate(places) if spans[i][1] > border), len(places))


def _positions_to_drop(sides: list[list[int]], excess: int, cut: TruncationSide) -> set[int]:
    """The places to drop: always from the longer text, at the chosen end."""
    keep = [len(side) for side in sides]
    for _ in range(min(excess, sum(keep))):
        keep[keep.index(max(keep))] -= 1
    dropped = [
        side[n:] if cut == "right" else side[: len(side) - n]
        for side, n in zip(sides, keep, strict=True)
    ]
    return {i for side in dropped for i in side}


def _empty_text_token(lm: LM, row: int) -> int:
    """The token that stands for an empty text."""
    for token in (lm.tokenizer.bos_token_id, lm.tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    raise BadData(
        f"Text {row} is empty, and the tokenizer of {lm.name!r} has no start or end token to "
        "stand for it: leave the text out."
    )
