"""Texts become rows of token ids: cut, windowed, marked, and every loss of text counted."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadData, BadSpec
from cutaway.core.textset import TextSet
from cutaway.extract.request import ExtractionRequest
from cutaway.models.lm import LM
from cutaway.models.tokens import tokenize


@dataclass(frozen=True)
class TokenRows:
    """One row per forward: a text, or one window of a long text.

    owner[i] is the text that row i belongs to; of its tokens those from fresh[i] on count (the
    ones before are context seen in an earlier window). marks[i] are the marked positions.
    """

    rows: list[list[int]]
    text_index: NDArray[np.int64]
    first_counted: NDArray[np.int64]
    marks: list[NDArray[np.int64]]
    truncated: NDArray[np.int64]
    """Tokens cut off, per text."""

    @property
    def lengths(self) -> list[int]:
        """Tokens per row."""
        return [len(row) for row in self.rows]

    @property
    def tokens(self) -> int:
        """All tokens that go through the model."""
        return sum(self.lengths)


def build_token_rows(lm: LM, texts: TextSet, ask: ExtractionRequest) -> TokenRows:
    """Tokens of every text as the ask wants them."""
    limit = _unlimited(texts) if ask.window else min(ask.max_tokens or lm.context, lm.context)
    got = tokenize(
        lm, texts.texts, pairs=texts.pairs, prompt=ask.prompt, limit=limit, cut=ask.truncation
    )
    if ask.window:
        return _windows(lm, got.rows, ask.window)
    n = len(got.rows)
    marks = _marks(lm, got.rows, ask) if ask.input_mode != "plain" else [np.zeros(0, np.int64)] * n
    rows = _masked(lm, got.rows, marks) if ask.input_mode == "mask" else got.rows
    if ask.input_mode == "cut" and lm.kind == "causal":
        # What comes behind the last mark can't change it: those tokens need not be read.
        rows = [row[: int(at[-1]) + 1] for row, at in zip(rows, marks, strict=True)]
    return TokenRows(rows, np.arange(n), np.zeros(n, np.int64), marks, got.truncated)


def _unlimited(texts: TextSet) -> int:
    """More tokens than any text can have: a token is at least a byte or a special one."""
    return 8 + max((4 * len(t) for t in (*texts.texts, *(texts.pairs or ()))), default=0)


def _windows(lm: LM, rows: Sequence[list[int]], window: int) -> TokenRows:
    """Overlapping windows: each starts half a window later, so every token but the first few
    is read with at least half a window of context in front of it."""
    if not 2 <= window <= lm.context:
        raise BadSpec(
            f"window must be 2 to {lm.context} tokens (the model's context), got {window}."
        )
    step, out, owner, fresh = window // 2, [], [], []
    for number, row in enumerate(rows):
        starts = range(0, max(len(row) - window, 0) + step, step) if len(row) > window else [0]
        for start in starts:
            piece = row[start : start + window]
            seen = 0 if start == 0 else window - step
            if seen < len(piece):
                out.append(piece)
                owner.append(number)
                fresh.append(seen)
    none = [np.zeros(0, np.int64)] * len(out)
    return TokenRows(out, np.array(owner), np.array(fresh), none, np.zeros(len(rows), np.int64))


def _marks(lm: LM, rows: Sequence[list[int]], ask: ExtractionRequest) -> list[NDArray[np.int64]]:
    """Seeded positions per row, never a special token; each row has its own stream of chance."""
    special = set(lm.tokenizer.all_special_ids)
    marks = []
    for number, row in enumerate(rows):
        choices = [i for i, token in enumerate(row) if token not in special]
        if not choices:
            raise BadData(f"Text {number} has no ordinary token to mark: leave it out.")
        rng = np.random.default_rng([ask.seed, number])
        take = min(ask.positions, len(choices))
        marks.append(np.sort(rng.choice(np.array(choices), size=take, replace=False)))
    return marks


def _masked(
    lm: LM, rows: Sequence[list[int]], marks: Sequence[NDArray[np.int64]]
) -> list[list[int]]:
    """The rows with [MASK] at the marked positions."""
    mask = lm.tokenizer.mask_token_id
    if mask is None:
        raise BadSpec(f"{lm.name!r} has no mask token: feed='mask' needs a masked model.")
    return [
        [mask if i in set(at.tolist()) else token for i, token in enumerate(row)]
        for row, at in zip(rows, marks, strict=True)
    ]
