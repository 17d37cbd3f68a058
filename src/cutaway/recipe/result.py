"""Results of verbs: a finished run, or the report of an action."""

import sys
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
        """The findings as sentences."""
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
        """Draw the figure called `name`; UnknownName lists the figures of this method."""
        from cutaway.report.figures import figure

        return figure(self.record, name)

    def plain(self) -> dict[str, Any]:
        """The summary with the run's address and folder, as JSON-ready values."""
        return {**self.summary, "address": self.record.address, "path": str(self.path)}

    def show(self) -> None:
        """Print the verdict and the most important lines of the table on stdout."""
        from cutaway.report.terminal import print_record

        print_record(self.record)

    def __repr__(self) -> str:
        """The run's address and its verdict."""
        return "\n".join([f"<{self.record.method} {self.record.address}>", *self.verdict])


@dataclass(frozen=True)
class ActionResult:
    """What a verb that leaves no run behind did, in sentences and as plain values."""

    verdict: tuple[str, ...]
    facts: dict[str, Any]

    def plain(self) -> dict[str, Any]:
        """JSON-ready values."""
        return {**self.facts, "verdict": list(self.verdict)}

    def show(self) -> None:
        """Print the sentences on stdout."""
        sys.stdout.write("\n".join(self.verdict) + "\n")
