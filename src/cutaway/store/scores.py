"""The table `scores` of `cutaway query`: one line per cell, with the run's main metric.

`rows` has every metric of every repeat, of controls too, so that a mean over it mixes what can't be
compared. `scores` has the mean over the repeats (or seeds) of the one metric that the run is about,
on test rows, for the cells that answer its question.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cutaway.measure.intervals import over_seed_rows
from cutaway.measure.metrics import MAIN_METRIC_ORDER, metric_facts
from cutaway.store.records import Record

if TYPE_CHECKING:
    import polars as pl

# What isn't a coordinate of a cell.
_MEASURED = frozenset(
    ("metric", "value", "low", "high", "repeat", "seed", "status", "reason", "seconds")
)
_SIZES = ("n_train", "n_val", "n_test")
BASELINE = "baseline"
CONTROL_KINDS = (BASELINE, "twin", "control")
"""Kinds of rows that are compared with scores and are none themselves."""
SCORE_COLUMNS = ("metric", "value", "low", "high", "repeats", BASELINE)


def run_scores(record: Record) -> "pl.DataFrame":
    """The scores of one run; no lines if it measured nothing that counts as its main metric."""
    import polars as pl

    rows = record.rows
    if not {"metric", "value"} <= set(rows.columns):
        return pl.DataFrame()
    rows = _measured_on_test(rows).filter(pl.col("metric") == _main_metric(record.summary, rows))
    cell = [c for c in rows.columns if c not in _MEASURED and c not in _SIZES]
    known = rows.with_columns(
        pl.lit(None, dtype=pl.Float64).alias(c) for c in ("low", "high") if c not in rows.columns
    )
    sized = _with_size(known, cell)
    sizes = [pl.col(c).max() for c in _SIZES if c in rows.columns]
    cells = sized.group_by([*cell, "_size", "metric"], maintain_order=True).agg(
        *sizes, pl.col("value", "low", "high"), pl.len().cast(pl.Int64).alias("repeats")
    )
    scored = cells.with_columns(_means(cells)).drop("_size")
    return _beside_baseline(scored).select(
        *cell, *[c for c in _SIZES if c in rows.columns], *SCORE_COLUMNS
    )


def _measured_on_test(rows: "pl.DataFrame") -> "pl.DataFrame":
    """Without failed cells, and without the dev scores of a training that also has test scores."""
    import polars as pl

    rows = rows.filter(pl.col("value").is_not_null())
    if "part" in rows.columns and (rows["part"] == "test").any():
        rows = rows.filter(pl.col("part").is_null() | (pl.col("part") == "test"))
    return rows


def _main_metric(summary: Any, rows: "pl.DataFrame") -> "pl.Expr":
    """The metric that the run names, by data set where it does; else the best known one."""
    import polars as pl

    found = set(rows["metric"].drop_nulls())
    said = summary if isinstance(summary, Mapping) else {}
    ordered = [m for m in MAIN_METRIC_ORDER if m in found]
    main = said.get("metric")
    if main not in found:
        main = ordered[0] if ordered else found.pop() if len(found) == 1 else None
    for column in ("data", "task"):
        named = {
            str(e.get(column)): e["metric"] for e in _findings(said) if e.get("metric") in found
        }
        if column in rows.columns and named:
            return pl.col(column).replace_strict(named, default=main, return_dtype=pl.String)
    return pl.lit(main, dtype=pl.String)


def _findings(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = summary.get("findings")
    return [e for e in found if isinstance(e, Mapping)] if isinstance(found, list) else []


def _with_size(rows: "pl.DataFrame", cell: Sequence[str]) -> "pl.DataFrame":
    """Rows with the place of their training size in the learning curve, 1 without a curve.

    In a curve the same repeat has several sizes. Folds differ in size too, but each is one repeat.
    """
    import polars as pl

    if not {"repeat", "n_train"} <= set(rows.columns):
        return rows.with_columns(pl.lit(1).alias("_size"))
    place = pl.col("n_train").rank("dense").over(*cell, "metric", "repeat")
    return rows.with_columns(place.fill_null(0).alias("_size"))


def _means(cells: "pl.DataFrame") -> "list[pl.Series]":
    """Mean and interval of each cell; a new interval where every seed has its own."""
    import polars as pl

    columns: dict[str, list[float | None]] = {"value": [], "low": [], "high": []}
    for cell in cells.select("metric", "value", "low", "high").iter_rows(named=True):
        values = [float(v) for v in cell["value"]]
        low, high = ({v for v in cell[end] if v is not None} for end in ("low", "high"))
        ends = (next(iter(low), None), next(iter(high), None))
        if len(low) > 1 or len(high) > 1:
            mean = over_seed_rows(values, cell["low"], cell["high"])
            least, most = metric_facts(cell["metric"]).bounds
            ends = (
                mean.low if least is None else max(mean.low, least),
                mean.high if most is None else min(mean.high, most),
            )
        for name, value in zip(columns, (sum(values) / len(values), *ends), strict=True):
            columns[name].append(value)
    return [pl.Series(name, values, dtype=pl.Float64) for name, values in columns.items()]


def _beside_baseline(scored: "pl.DataFrame") -> "pl.DataFrame":
    """The cells without controls, with the best baseline on the same rows beside each."""
    import polars as pl

    if "kind" not in scored.columns:
        return scored.with_columns(pl.lit(None, dtype=pl.Float64).alias(BASELINE))
    same = [c for c in ("model", "data", "n_train") if c in scored.columns]
    best: dict[tuple[Any, ...], float] = {}
    for line in scored.filter(pl.col("kind") == BASELINE).iter_rows(named=True):
        better = max if metric_facts(line["metric"]).higher_is_better else min
        key = tuple(line[c] for c in same)
        best[key] = better(line["value"], best.get(key, line["value"]))
    own = scored.filter(~pl.col("kind").is_in(CONTROL_KINDS).fill_null(value=False))
    keys = zip(*(own[c] for c in same), strict=True) if same else [()] * own.height
    beside = [best.get(tuple(key)) for key in keys]
    return own.with_columns(pl.Series(BASELINE, beside, dtype=pl.Float64))
