"""Texts become rows of token ids: truncated, cut into windows, marked."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadData, BadSpec
from cutaway.core.textset import TextSet
from cutaway.extract.request import ExtractionRequest
from cutaway.models.lm import LM
from cutaway.models.tokens import tokenize

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class TokenRows:
    """One row per forward pass: a text, or one window of a long text."""

    rows: list[list[int]]
    text_index: Indices
    """The text that each row belongs to."""
    first_counted: Indices
    """The first token of each row that counts; those before are context of an earlier window."""
    marks: list[Indices]
    """The marked positions of each row."""
    truncated: Indices
    """Tokens cut off, per text."""

    @property
    def lengths(self) -> list[int]:
        """Tokens per row."""
        return [len(row) for row in self.rows]

    @property
    def tokens(self) -> int:
        """All tokens that go through the model."""
        return sum(self.lengths)

    def select(self, rows_of_text: Sequence[Indices], texts: Indices) -> "TokenRows":
        """The rows of some texts, numbered anew."""
        rows = np.concatenate(rows_of_text)
        text_index = np.repeat(np.arange(len(texts)), [len(rows) for rows in rows_of_text])
        return TokenRows(
            [self.rows[i] for i in rows], text_index, self.first_counted[rows],
            [self.marks[i] for i in rows], self.truncated[texts],
        )  # fmt: skip


def build_token_rows(lm: LM, texts: TextSet, request: ExtractionRequest) -> TokenRows:
    """The tokens of every text as the request asks for them."""
    limit = min(request.max_tokens or lm.context, lm.context)
    if request.window:
        # More tokens than any text can have: a token is at least a byte, or a special token.
        limit = 8 + max((4 * len(t) for t in (*texts.texts, *(texts.pairs or ()))), default=0)
    tokenized = tokenize(
        lm, texts.texts, pairs=texts.pairs, prompt=request.prompt, limit=limit,
        truncation=request.truncation,
    )  # fmt: skip
    if request.window:
        return _windows(lm, tokenized.rows, request.window)
    rows, n, mode = tokenized.rows, len(tokenized.rows), request.input_mode
    marks = [np.zeros(0, np.int64)] * n if mode == "plain" else _choose_marks(lm, rows, request)
    if mode == "mask":
        rows = _masked(lm, rows, marks)
    if mode == "cut" and lm.kind == "causal":
        # Tokens after the last mark can't change its state, so they are not read.
        rows = [row[: int(at[-1]) + 1] for row, at in zip(rows, marks, strict=True)]
    return TokenRows(rows, np.arange(n), np.zeros(n, np.int64), marks, tokenized.truncated)


def _windows(lm: LM, rows: Sequence[list[int]], window: int) -> TokenRows:
    """Windows that overlap by half, so that every token except the first few is read with at
    least half a window of context before it."""
    if not 2 <= window <= lm.context:
        raise BadSpec(
            f"window must be 2 to {lm.context} tokens (the model's context), got {window}."
        )
    step, pieces, text_index, first_counted = window // 2, [], [], []
    for number, row in enumerate(rows):
        starts = range(0, len(row) - window + step, step) if len(row) > window else [0]
        for start in starts:
            piece = row[start : start + window]
            already_counted = 0 if start == 0 else window - step
            if already_counted < len(piece):
                pieces.append(piece)
                text_index.append(number)
                first_counted.append(already_counted)
    marks = [np.zeros(0, np.int64)] * len(pieces)
    truncated = np.zeros(len(rows), np.int64)
    return TokenRows(pieces, np.array(text_index), np.array(first_counted), marks, truncated)


def _choose_marks(lm: LM, rows: Sequence[list[int]], request: ExtractionRequest) -> list[Indices]:
    """Seeded random positions of each row, never a special token; each row has its own stream."""
    special = set(lm.tokenizer.all_special_ids)
    marks = []
    for number, row in enumerate(rows):
        choices = [i for i, token in enumerate(row) if token not in special]
        if not choices:
            raise BadData(f"Text {number} has only special tokens: leave it out.")
        rng = np.random.default_rng([request.seed, number])
        size = min(request.positions, len(choices))
        marks.append(np.sort(rng.choice(np.array(choices), size=size, replace=False)))
    return marks


def _masked(lm: LM, rows: Sequence[list[int]], marks: Sequence[Indices]) -> list[list[int]]:
    """The rows with [MASK] at the marked positions."""
    mask = lm.tokenizer.mask_token_id
    if mask is None:
        raise BadSpec(f"{lm.name!r} has no mask token: input_mode='mask' needs a masked model.")
    return [
        [mask if i in set(at.tolist()) else token for i, token in enumerate(row)]
        for row, at in zip(rows, marks, strict=True)
    ]
