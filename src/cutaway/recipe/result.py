"""What a recipe gives back: a finished run with its numbers, rows and figures."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.store.results import Record

if TYPE_CHECKING:
    import plotly.graph_objects as go
    import polars as pl


@dataclass(frozen=True)
class Result:
    """A finished run. `summary` is plain values, `rows` a data frame, `path` its folder."""

    record: Record

    @property
    def summary(self) -> dict[str, Any]:
        """The findings: best cells with intervals, baselines, verdict sentences."""
        return self.record.summary

    @property
    def verdict(self) -> tuple[str, ...]:
        """The findings in sentences."""
        return tuple(self.summary.get("verdict", ()))

    @property
    def rows(self) -> "pl.DataFrame":
        """One row per measured cell, repeat and metric."""
        return self.record.rows

    @property
    def path(self) -> Path:
        """The run's folder."""
        return Path(self.record.path)

    def figure(self, name: str) -> "go.Figure":
        """The figure called `name`; UnknownName lists those this method has."""
        from cutaway.report.figures import figure

        return figure(self.record, name)

    def __repr__(self) -> str:
        """The run's address and its verdict."""
        return "\n".join([f"<{self.record.method} {self.record.address}>", *self.verdict])
