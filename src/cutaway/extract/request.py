"""What one forward pass should return, the key it is stored under, and its rows of token ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cutaway.core.digest import digest_rows
from cutaway.core.errors import BadData, BadSpec
from cutaway.core.textset import TextSet
from cutaway.models.lm import LM
from cutaway.models.read_texts import need_places
from cutaway.models.start_token import tokens_in_front
from cutaway.models.tokens import tokenize
from cutaway.pool import needs_attention
from cutaway.store.activations import ActivationTable

InputMode = Literal["plain", "cut", "mask"]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class ExtractionRequest:
    """Everything a pass should store, and everything that can change its numbers.

    input_mode: `plain` reads the texts as they are; `cut` marks seeded random positions (in causal
    models the state there is that of the prefix that ends there); `mask` puts [MASK] at them.
    heads: `final` (the input of the output embedding), `logz` (log-partition), `next` (most likely
    next token, its probability, the entropy), each at the pooled position.
    """

    layers: tuple[int, ...]
    pools: tuple[str, ...] = ("last",)
    heads: tuple[str, ...] = ()
    prompt: str = ""
    max_tokens: int | None = None
    truncation: Literal["right", "left"] = "right"
    input_mode: InputMode = "plain"
    positions: int = 1
    seed: int = 0
    stored_dtype: str = "float32"
    window: int | None = None

    def columns(self) -> dict[str, tuple[str, str]]:
        """Stored name -> (layer or head, pooler)."""
        sources = [*map(str, self.layers), *self.heads]
        return {f"{source}/{pool}": (source, pool) for source in sources for pool in self.pools}

    def missing_columns(self, table: ActivationTable) -> dict[str, tuple[str, str]]:
        """The columns that the table doesn't have yet."""
        there = table.columns()
        return {name: column for name, column in self.columns().items() if name not in there}

    def key(self, lm: LM, texts: TextSet) -> dict[str, Any]:
        """The identity of the stored rows: everything that can change a number.

        Layers, heads and poolers are columns of the same table, so they are no part of it, except
        that a pooler that needs attention weights makes the whole pass use the eager kernel.
        """
        marked = self.input_mode != "plain"
        return {
            "model": lm.name,
            "weights": lm.digest,
            "family": lm.family,
            "dtype": str(lm.dtype),
            "attention": "eager" if needs_attention(self.pools) else lm.attention,
            "tokenizer": lm.tokenizer_digest,
            "prompt": self.prompt,
            "max_tokens": min(self.max_tokens or lm.context, lm.context),
            "cut": self.truncation,
            # Since version 2, later windows begin with the start token.
            "window": self.window and [self.window, 2],
            "feed": self.input_mode,
            "positions": self.positions if marked else 0,
            "seed": self.seed if marked else 0,
            "keep": self.stored_dtype,
            "rows": digest_rows([*texts.texts, *(texts.pairs or ()), *texts.message_rows]),
            "paired": texts.pairs is not None,
            "transformers": version("transformers"),
            "layout": 2,
            **lm.reading_identity,
        }


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
    places: list[NDArray[np.int8]] | None = None
    """The message that each token of each row belongs to (`pool.PLACE_CODES`); None for plain
    text."""

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
            None if self.places is None else [self.places[i] for i in rows],
        )  # fmt: skip


def build_token_rows(lm: LM, texts: TextSet, request: ExtractionRequest) -> TokenRows:
    """The tokens of every text as the request asks for them."""
    limit = min(request.max_tokens or lm.context, lm.context)
    if request.window:
        # More tokens than any text can have: a token is at least a byte, or a special token.
        limit = 8 + max((4 * len(t) for t in (*texts.texts, *(texts.pairs or ()))), default=0)
        if lm.chat is not None:
            raise BadSpec("Sliding windows are for plain text: leave out the window or --chat.")
    tokenized = tokenize(
        lm, texts.texts, pairs=texts.pairs, messages=texts.messages, prompt=request.prompt,
        limit=limit, truncation=request.truncation,
    )  # fmt: skip
    need_places(request.pools, tokenized)
    if request.window:
        return _windows(lm, tokenized.rows, request.window)
    rows, n, mode = tokenized.rows, len(tokenized.rows), request.input_mode
    places = tokenized.places
    marks = [np.zeros(0, np.int64)] * n
    if mode != "plain":
        marks = _choose_marks(lm, rows, places, request)
    if mode == "mask":
        rows = _masked(lm, rows, marks)
    if mode == "cut" and lm.kind == "causal":
        # Tokens after the last mark can't change its state, so they are not read.
        rows = [row[: int(at[-1]) + 1] for row, at in zip(rows, marks, strict=True)]
        if places is not None:
            places = [codes[: len(row)] for codes, row in zip(places, rows, strict=True)]
    return TokenRows(rows, np.arange(n), np.zeros(n, np.int64), marks, tokenized.truncated, places)


def _windows(lm: LM, rows: Sequence[list[int]], window: int) -> TokenRows:
    """Windows that overlap by half, so that every token except the first few is read with at
    least half a window of context before it.

    Later windows begin with the tokens that the tokenizer puts before a text, as every text that
    the model was trained on does; there they are context and don't count.
    """
    front = len(tokens_in_front(lm.tokenizer))
    if not front + 2 <= window <= lm.context:
        also = f", {front} of which begin every window" if front else ""
        raise BadSpec(
            f"window must be {front + 2} to {lm.context} tokens (the model's context{also}), got "
            f"{window}."
        )
    size = window - front
    step, pieces, text_index, first_counted = size // 2, [], [], []
    for number, row in enumerate(rows):
        starts = range(0, len(row) - window + step, step) if len(row) > window else [0]
        for start in starts:
            piece = row[:front] + row[front + start : start + window]
            already_counted = 0 if start == 0 else window - step
            if already_counted < len(piece):
                pieces.append(piece)
                text_index.append(number)
                first_counted.append(already_counted)
    marks = [np.zeros(0, np.int64)] * len(pieces)
    truncated = np.zeros(len(rows), np.int64)
    return TokenRows(pieces, np.array(text_index), np.array(first_counted), marks, truncated)


def _choose_marks(
    lm: LM,
    rows: Sequence[list[int]],
    places: list[NDArray[np.int8]] | None,
    request: ExtractionRequest,
) -> list[Indices]:
    """Seeded random positions of each row, never a special token, nor one of a chat template; each
    row has its own stream."""
    special = set(lm.tokenizer.all_special_ids)
    marks = []
    for number, row in enumerate(rows):
        choices = [i for i, token in enumerate(row) if token not in special]
        if places is not None:
            choices = [i for i in choices if places[number][i]]
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
