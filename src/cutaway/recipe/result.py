"""Results of verbs: tidy tables, cost, versions, facts, and the command to repeat them."""

import resource
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import psutil

from cutaway.console import print_result
from cutaway.core.shell_words import join_words
from cutaway.core.spec import NONE_WORD, Spec
from cutaway.core.textset import TextSet
from cutaway.measure.intervals import Interval
from cutaway.recipe.options import RunOptions
from cutaway.store.results import Record
from cutaway.store.versions import versions

if TYPE_CHECKING:
    import plotly.graph_objects as go

Row = dict[str, Any]


def bounds(value: float | Interval | None) -> Row:
    """The columns `value`, `low` and `high` of an interval; `value` alone for a number or None."""
    if isinstance(value, Interval):
        return {"value": value.mean, "low": value.low, "high": value.high}
    return {"value": value}


def table(rows: Iterable[Mapping[str, Any]], schema: Mapping[str, Any]) -> pl.DataFrame:
    """The rows as a frame with the columns of the schema; missing values and NaN become null."""
    full = [{name: row.get(name) for name in schema} for row in rows]
    made = pl.DataFrame(full, schema=dict(schema), orient="row")
    return made.with_columns(pl.col("value", "low", "high").fill_nan(None))


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
    def samples(self) -> "pl.DataFrame":
        """One row per sample, read when it is asked for; Missing if made without `samples`."""
        return self.record.samples

    @property
    def splits(self) -> "pl.DataFrame":
        """Which rows of which set were used for what, and the marked token positions."""
        return self.record.splits

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
    """What a verb that saves no run did, in sentences and as plain values."""

    verdict: tuple[str, ...]
    facts: dict[str, Any]

    def plain(self) -> dict[str, Any]:
        """JSON-ready values."""
        return {**self.facts, "verdict": list(self.verdict)}

    def show(self) -> None:
        """Print the sentences on stdout."""
        print_result("\n".join(self.verdict))


@dataclass
class CostMeter:
    """Seconds and peak memory of a `with measure_cost()` block."""

    seconds: float = 0.0
    peak_memory_mb: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)


@contextmanager
def measure_cost(every: float = 0.05) -> Iterator[CostMeter]:
    """Measure the wall time and the peak resident memory of a block."""
    meter, start = CostMeter(), time.monotonic()
    watcher = threading.Thread(target=_watch_memory, args=(meter, every), daemon=True)
    watcher.start()
    try:
        yield meter
    finally:
        meter._stop.set()
        watcher.join()
        meter.seconds = round(time.monotonic() - start, 3)


def _watch_memory(meter: CostMeter, every: float) -> None:
    process = psutil.Process()
    while True:
        used = process.memory_info().rss / 2**20
        meter.peak_memory_mb = max(meter.peak_memory_mb, round(used, 1))
        if meter._stop.wait(every):
            return


def process_peak_mb() -> float:
    """The highest resident memory of this process so far."""
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def provenance(verb: str, spec: RunOptions, meter: CostMeter) -> dict[str, Any]:
    """Seed, versions, cost and command, as every run keeps them."""
    return {
        "seed": spec.seed,
        "versions": versions(),
        "seconds": meter.seconds,
        "peak_memory_mb": meter.peak_memory_mb,
        "command": command_line(verb, spec),
    }


def command_line(verb: str, spec: Spec) -> str:
    """The shortest command that gives this spec, as text for a shell."""
    return join_words(["cutaway", *command_words(verb, spec)])


def command_words(verb: str, spec: Spec) -> list[str]:
    """The arguments of `cutaway` that give this spec; no value of it is read as a flag."""
    words = verb.split()
    for name, info in type(spec).model_fields.items():
        value = getattr(spec, name)
        if value != info.get_default(call_default_factory=True):
            words += _flag(name, value)
    return words


def _flag(name: str, value: Any) -> list[str]:
    """A flag with its value, `--model=x`, in one word, which the parser never splits."""
    flag = "--" + name.strip("_").replace("_", "-")
    if isinstance(value, bool):
        return [flag if value else flag.replace("--", "--no-", 1)]
    if isinstance(value, tuple):
        return [f"{flag}={item}" for item in value or ("",)]
    return [f"{flag}={NONE_WORD if value is None else value}"]


def data_facts(texts: TextSet) -> dict[str, Any]:
    """What identifies a set in results."""
    return {
        "name": texts.name, "rows": len(texts), "digest": texts.digest, "task": texts.task,
        "classes": list(texts.classes), "notes": list(texts.notes),
    }  # fmt: skip


def one_or_many(many: list[dict[str, Any]]) -> Any:
    """A single entry as it is, several as a list."""
    return many[0] if len(many) == 1 else many
