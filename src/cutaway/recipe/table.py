"""Tidy tables: one row per measured cell, an interval beside the value where there is one."""

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from cutaway.measure.intervals import Interval

Row = dict[str, Any]


def bounds(value: float | Interval | None) -> Row:
    """`value`, `low` and `high` of an interval; a bare number, or none, has no ends."""
    if isinstance(value, Interval):
        return {"value": value.mean, "low": value.low, "high": value.high}
    return {"value": value}


def table(rows: Iterable[Mapping[str, Any]], schema: Mapping[str, Any]) -> pl.DataFrame:
    """The rows with every column of the schema, in its order; what is missing or NaN is null."""
    full = [{name: row.get(name) for name in schema} for row in rows]
    made = pl.DataFrame(full, schema=dict(schema), orient="row")
    return made.with_columns(pl.col("value", "low", "high").fill_nan(None))
