"""A table of all runs, made from their summaries alone, so that thousands are quick."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from cutaway.core.names import short_name
from cutaway.report import formats
from cutaway.report.metric_labels import lower_is_better
from cutaway.report.records import (
    RecordLike,
    entry_names,
    is_imported,
    verdict_sentences,
)
from cutaway.store.records import RESULT_FILE
from cutaway.store.run_index import RunTable, gather
from cutaway.store.run_tables import valid_text

OVERVIEW_SCHEMA = {
    "method": pl.String,
    "address": pl.String,
    "model": pl.String,
    "data": pl.String,
    "metric": pl.String,
    "score": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "baseline": pl.Float64,
    "where": pl.String,
    "seconds": pl.Float64,
    "created": pl.String,
    "origin": pl.String,
    "verdict": pl.String,
}


@dataclass(frozen=True)
class Overview:
    """All runs of a folder."""

    listed: pl.DataFrame
    """One line per run, newest first."""
    broken: Sequence[tuple[Path, str]]
    """Folder and reason of runs that can't be read."""


def overview_table(records: Iterable[RecordLike]) -> pl.DataFrame:
    """One line per run: model, data, score and best baseline."""
    lines = [
        {
            "method": valid_text(record.method),
            "address": valid_text(record.address),
            **_line(record),
        }
        for record in records
    ]
    return _with_local_times(pl.DataFrame(lines, schema=OVERVIEW_SCHEMA, orient="row"))


def read_overview(folder: Path) -> Overview:
    """The lines of all runs of a folder, most of them from its index."""
    found = gather(folder, OVERVIEW)
    if not found.keys:
        return Overview(pl.DataFrame(schema=OVERVIEW_SCHEMA), found.broken)
    return Overview(_with_local_times(found.frame(list(OVERVIEW_SCHEMA))), found.broken)


def _line_frame(record: RecordLike) -> pl.DataFrame:
    line = _line(record)
    return pl.DataFrame([line], schema={name: OVERVIEW_SCHEMA[name] for name in line})


OVERVIEW = RunTable("overview", (RESULT_FILE,), _line_frame)


def _with_local_times(listed: pl.DataFrame) -> pl.DataFrame:
    times = [local_time(created) for created in listed["created"]]
    return listed.with_columns(pl.Series("created", times, dtype=pl.String))


def _line(record: RecordLike) -> dict[str, Any]:
    """A run's line without method and address; `created` as it was recorded."""
    top = headline_in_summary(record)
    line = {
        "model": ", ".join(map(short_name, entry_names(record.model))) or formats.DASH,
        "data": ", ".join(map(short_name, entry_names(record.data))) or formats.DASH,
        "metric": _text(top.get("metric") or (record.summary or {}).get("metric")),
        "score": _number(top.get("value")),
        "low": _number(top.get("low")),
        "high": _number(top.get("high")),
        "baseline": _baseline(record, top),
        "where": _cell_text(top),
        "seconds": _number(record.seconds),
        "created": record.created,
        "origin": "imported" if is_imported(record) else "run",
        "verdict": " ".join(verdict_sentences(record)),
    }
    return {n: valid_text(v) if isinstance(v, str) else v for n, v in line.items()}


def headline_in_summary(record: RecordLike) -> Mapping[str, Any]:
    """The score that a run's summary leads with; the first one for a grid."""
    summary = record.summary or {}
    top = summary.get("headline") or summary.get("best")
    if isinstance(top, list):
        top = top[0] if top else None
    return top if isinstance(top, Mapping) else {}


def _baseline(record: RecordLike, top: Mapping[str, Any]) -> float | None:
    """The best baseline for the headline's model and data."""
    all_baselines = record.baselines if isinstance(record.baselines, Mapping) else {}
    here = all_baselines.get(f"{top.get('model')} on {top.get('data')}", {})
    known = [n for n in map(_number, here.values()) if n is not None] if here else []
    if not known:
        return None
    return min(known) if lower_is_better(str(top.get("metric"))) else max(known)


def local_time(created: str) -> str:
    """A recorded time as local date and minute; unchanged if it can't be parsed."""
    try:
        return datetime.fromisoformat(created).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return created


def _cell_text(top: Mapping[str, Any]) -> str:
    words = [f"layer {top['layers']}"] if top.get("layers") not in (None, "-") else []
    words += [str(top[key]) for key in ("pool", "classifier", "features") if top.get(key)]
    return " · ".join(words)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
