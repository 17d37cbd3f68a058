"""Text with its labels: what every method eats."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cutaway.core.digest import canonical, digest_rows
from cutaway.core.errors import BadData

Task = Literal["text", "binary", "multiclass", "multilabel", "regression"]

PARTS = ("train", "dev", "test")


@dataclass(frozen=True)
class TextSet:
    """Texts, row by row with their labels, and where they come from.

    labels: class numbers (n,) for binary and multiclass; 0/1 (n, cls) for multilabel; floats
    (n,) for regression; None for plain text. `parts` says which rows are train, dev and test
    where the source has fixed splits, None where it hasn't.
    """

    name: str
    texts: tuple[str, ...]
    labels: NDArray[Any] | None = None
    task: Task = "text"
    classes: tuple[str, ...] = ()
    pairs: tuple[str, ...] | None = None
    parts: NDArray[np.str_] | None = None
    notes: tuple[str, ...] = ()
    """What the loader did that the user should know: rows dropped, columns guessed."""
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """BadData unless every column has one entry per text."""
        for column in ("labels", "pairs", "parts"):
            value = getattr(self, column)
            if value is not None and len(value) != len(self.texts):
                raise BadData(
                    f"{self.name!r} has {len(self.texts)} texts but {len(value)} {column}."
                )

    def __len__(self) -> int:
        """How many rows."""
        return len(self.texts)

    def take(self, rows: Sequence[int] | NDArray[np.integer]) -> "TextSet":
        """The chosen rows, in the chosen order."""
        index = np.asarray(rows, dtype=int)
        return replace(
            self,
            texts=tuple(self.texts[i] for i in index),
            labels=None if self.labels is None else self.labels[index],
            pairs=None if self.pairs is None else tuple(self.pairs[i] for i in index),
            parts=None if self.parts is None else self.parts[index],
            meta={name: self._rows_of_meta(value, index) for name, value in self.meta.items()},
        )

    def _rows_of_meta(self, value: Any, index: NDArray[Any]) -> Any:
        """A column of extra facts follows its rows; anything else stays as it is."""
        per_row = isinstance(value, np.ndarray) and len(value) == len(self)
        return value[index] if per_row else value

    def part(self, name: str) -> "TextSet":
        """The rows of one fixed split."""
        return self.take(self.rows_of(name))

    def rows_of(self, name: str) -> NDArray[np.integer]:
        """The row numbers of one fixed split; BadData when the source has none."""
        have = sorted(set(self.parts.tolist())) if self.parts is not None else []
        if self.parts is None or name not in have:
            raise BadData(
                f"{self.name!r} has no part {name!r}. It has: {', '.join(have) or 'no parts'}."
            )
        return np.flatnonzero(self.parts == name)

    @cached_property
    def digest(self) -> str:
        """The identity of these rows: texts, pairs, labels, classes and parts."""
        return digest_rows([*self._heads(), *self._rows()])

    def _heads(self) -> list[str]:
        return [self.task, canonical(list(self.classes))]

    def _rows(self) -> list[str]:
        pairs = self.pairs or ("",) * len(self)
        labels = [None] * len(self) if self.labels is None else np.asarray(self.labels).tolist()
        parts = [""] * len(self) if self.parts is None else self.parts.tolist()
        return [
            canonical([text, pair, repr(label), part])
            for text, pair, label, part in zip(self.texts, pairs, labels, parts, strict=True)
        ]
