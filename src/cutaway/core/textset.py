"""TextSet: texts with labels and splits, the input of every method."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cutaway.core.digest import canonical, digest_rows
from cutaway.core.errors import BadData
from cutaway.core.messages import Conversation, conversation_text, parse_conversation

Task = Literal["text", "binary", "multiclass", "multilabel", "regression"]

PARTS = ("train", "dev", "test")


@dataclass(frozen=True)
class TextSet:
    """A dataset of texts: one label per row, and the fixed splits if the source has them.

    labels: class indices (n,) for binary and multiclass; 0/1 (n, cls) for multilabel; floats
    (n,) for regression; None for unlabelled text. `parts` is `train`, `dev` or `test` for each
    row, or None if the source has no fixed splits.
    """

    name: str
    texts: tuple[str, ...]
    labels: NDArray[Any] | None = None
    task: Task = "text"
    classes: tuple[str, ...] = ()
    pairs: tuple[str, ...] | None = None
    parts: NDArray[np.str_] | None = None
    answers: tuple[str, ...] | None = None
    """The answer to each text, if the texts are questions."""
    notes: tuple[str, ...] = ()
    """Messages for the user about loading: rows dropped, columns guessed."""
    meta: dict[str, Any] = field(default_factory=dict)
    messages: tuple[Conversation | None, ...] | None = None
    """The conversation of each row; None for a row of plain text, or if there are only such rows.
    Read with the chat template; `texts` then has the contents, and is made from the messages if it
    is empty."""

    def __post_init__(self) -> None:
        """Check the messages; raise BadData unless every column has one entry per text."""
        if self.messages is not None:
            self._parse_messages()
        for column in ("labels", "pairs", "parts", "answers", "messages"):
            value = getattr(self, column)
            if value is not None and len(value) != len(self.texts):
                raise BadData(
                    f"{self.name!r} has {len(self.texts)} texts but {len(value)} {column}."
                )

    def _parse_messages(self) -> None:
        parsed = tuple(
            None if given is None else parse_conversation(given, f"row {row} of {self.name!r}")
            for row, given in enumerate(self.messages or (), start=1)
        )
        object.__setattr__(self, "messages", parsed)
        if not self.texts:
            texts = tuple("" if given is None else conversation_text(given) for given in parsed)
            object.__setattr__(self, "texts", texts)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.texts)

    def take(self, rows: Sequence[int] | NDArray[np.integer]) -> "TextSet":
        """The given rows, in the given order."""
        index = np.asarray(rows, dtype=int)
        return replace(
            self,
            texts=tuple(self.texts[i] for i in index),
            labels=None if self.labels is None else self.labels[index],
            pairs=None if self.pairs is None else tuple(self.pairs[i] for i in index),
            parts=None if self.parts is None else self.parts[index],
            answers=None if self.answers is None else tuple(self.answers[i] for i in index),
            messages=None if self.messages is None else tuple(self.messages[i] for i in index),
            meta={name: self._rows_of_meta(value, index) for name, value in self.meta.items()},
        )

    def _rows_of_meta(self, value: Any, index: NDArray[Any]) -> Any:
        """Select the rows of an array with one entry per row; other values are unchanged."""
        per_row = isinstance(value, np.ndarray) and len(value) == len(self)
        return value[index] if per_row else value

    def part(self, name: str) -> "TextSet":
        """The rows of one fixed split."""
        return self.take(self.rows_of(name))

    def rows_of(self, name: str) -> NDArray[np.integer]:
        """Row numbers of one fixed split; BadData if the source doesn't have it."""
        known = sorted(set(self.parts.tolist())) if self.parts is not None else []
        if self.parts is None or name not in known:
            raise BadData(
                f"{self.name!r} has no part {name!r}. It has: {', '.join(known) or 'no parts'}."
            )
        return np.flatnonzero(self.parts == name)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of texts, pairs, messages, labels, classes, parts and
        answers."""
        rows = [self.task, canonical(list(self.classes)), *self._rows()]
        return digest_rows([*rows, *(self.answers or ()), *self.message_rows])

    @property
    def message_rows(self) -> list[str]:
        """The conversation of each row as JSON, for digests; empty for plain text."""
        return [] if self.messages is None else [canonical(one) for one in self.messages]

    def _rows(self) -> list[str]:
        pairs = self.pairs or ("",) * len(self)
        labels = [None] * len(self) if self.labels is None else np.asarray(self.labels).tolist()
        parts = [""] * len(self) if self.parts is None else self.parts.tolist()
        return [
            canonical([text, pair, repr(label), part])
            for text, pair, label, part in zip(self.texts, pairs, labels, parts, strict=True)
        ]
