"""`details.json`: the data of figures that need more than one number per cell.

The file is a JSON list. Each entry belongs to one cell of the grid (model, data, layers, pool,
classifier, repeat: as in `rows.parquet`); `figure` names the figure it is for:

    confusion    classes, counts[true][called]
    roc          label, false_positive[], true_positive[], auc
    scores       edges[], counts{class: [per bin]}, threshold
    projection   way (pca | lda), x[], y[], labels[], texts[]
    losses       train[], validation[], kept (the epoch whose weights are used)

A run without this file is complete; it only has fewer figures.
"""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from cutaway.core.errors import Corrupt
from cutaway.store.files import disk_errors

DETAILS_FILE = "details.json"
DetailKey = tuple[str, str, str, str, str]


class CellDetail(BaseModel):
    """The cell an entry belongs to."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: str
    data: str
    layers: str
    pool: str
    classifier: str
    repeat: int = 0

    @property
    def key(self) -> DetailKey:
        """The cell, without the repeat."""
        return (self.model, self.data, self.layers, self.pool, self.classifier)


class ConfusionMatrix(CellDetail):
    """Counts of true (row) and predicted (column) classes on test rows."""

    figure: Literal["confusion"] = "confusion"
    classes: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    @model_validator(mode="after")
    def _square(self) -> "ConfusionMatrix":
        size = len(self.classes)
        if len(self.counts) != size or any(len(row) != size for row in self.counts):
            raise ValueError(f"counts must be {size} x {size}, one row and column per class")
        return self


class RocCurve(CellDetail):
    """The ROC curve of one class against the rest, on test rows; both lists rise from 0 to 1."""

    figure: Literal["roc"] = "roc"
    label: str
    false_positive: tuple[float, ...]
    true_positive: tuple[float, ...]
    auc: float | None = None

    @model_validator(mode="after")
    def _paired(self) -> "RocCurve":
        _same_length(self.false_positive, self.true_positive)
        return self


class ScoreHistogram(CellDetail):
    """A histogram of test scores by true class; the last edge closes the last bin."""

    figure: Literal["scores"] = "scores"
    edges: tuple[float, ...]
    counts: dict[str, tuple[int, ...]]
    threshold: float | None = None
    """Scores above it are predicted positive; None if there is none or it is infinite."""

    @field_validator("threshold", mode="before")
    @classmethod
    def _finite(cls, value: float | None) -> float | None:
        # "Always positive" is a threshold of -inf, which JSON and axes can't represent.
        return value if value is not None and math.isfinite(value) else None

    @model_validator(mode="after")
    def _bins(self) -> "ScoreHistogram":
        if any(len(c) != len(self.edges) - 1 for c in self.counts.values()):
            raise ValueError("edges must be one more than the counts of each class")
        return self


class Projection(CellDetail):
    """Hidden states in two dimensions, one point per row, with its label and maybe its text."""

    figure: Literal["projection"] = "projection"
    way: Literal["pca", "lda"] = "pca"
    x: tuple[float, ...]
    y: tuple[float, ...]
    labels: tuple[str, ...] | tuple[float, ...]
    texts: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _points(self) -> "Projection":
        _same_length(self.x, self.y, self.labels, *([self.texts] if self.texts else []))
        return self


class LossCurves(CellDetail):
    """A gradient probe's loss after each epoch."""

    figure: Literal["losses"] = "losses"
    train: tuple[float, ...]
    validation: tuple[float, ...] = ()
    kept: int | None = None
    """The epoch (from 1) whose weights are used."""


AnyDetail = ConfusionMatrix | RocCurve | ScoreHistogram | Projection | LossCurves
_DETAIL_LIST = TypeAdapter(list[Annotated[AnyDetail, Field(discriminator="figure")]])


def validate_details(entries: list[dict[str, Any]]) -> list[AnyDetail]:
    """The entries as typed values."""
    return _DETAIL_LIST.validate_python(entries)


def dump_details(details: Iterable[AnyDetail]) -> bytes:
    """The file's contents."""
    return _DETAIL_LIST.dump_json(list(details))


def parse_details(text: bytes, *, where: str = DETAILS_FILE) -> list[AnyDetail]:
    """The entries in a file's contents; Corrupt names the first thing that is wrong."""
    try:
        return _DETAIL_LIST.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(str(part) for part in first["loc"]) or "the whole file"
        raise Corrupt(
            f"{where} can't be read at {at}: {first['msg']}. "
            "Delete it to continue without these figures, or repeat the run."
        ) from None


def read_details(folder: Path) -> list[AnyDetail]:
    """A run's entries; none when it has no such file."""
    path = Path(folder) / DETAILS_FILE
    with disk_errors(path):
        return parse_details(path.read_bytes(), where=str(path)) if path.exists() else []


def _same_length(*columns: tuple[object, ...]) -> None:
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise ValueError(f"columns must be of one length, got {sorted(lengths)}")
