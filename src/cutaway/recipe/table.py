"""Tidy tables: one row per measured cell, with an interval where there is one."""

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from cutaway.measure.intervals import Interval

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
