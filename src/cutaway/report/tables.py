"""Results as tables: tidy frames, and the same frames as text, Markdown, CSV or LaTeX."""

import io
import re
import unicodedata
from collections.abc import Callable
from typing import Any

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cutaway.catalog import method_module, methods
from cutaway.measure.intervals import corrected_t
from cutaway.report import formats
from cutaway.report.cells import (
    LOWER_IS_BETTER,
    METRIC_RANGES,
    aggregate_cells,
    largest_training_size,
    main_metric,
    varying_columns,
)
from cutaway.report.records import RecordLike, RunOrRuns

SUMMARY_COLUMNS = (
    "model", "data", "kind", "layers", "pool", "classifier", "metric",
    "mean", "low", "high", "repeats", "n_train", "n_test", "failed",
)  # fmt: skip
# What isn't a coordinate of a cell.
NON_COORDINATES = frozenset({"value", "low", "high", "repeat", "seed", "status", "reason"})
# Whole numbers, shown without decimals even when the column holds floats.
COUNT_COLUMNS = frozenset(
    {"repeats", "n_train", "n_test", "n_val", "failed", "times", "repeat", "rows"}
)

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "²": r"\textsuperscript{2}",
    "–": "--", "…": r"\ldots{}", "·": r"\textperiodcentered{}",
}  # fmt: skip


def summarize_cells(rows: pl.DataFrame, metric: str | None = None) -> pl.DataFrame:
    """One line per cell and metric: mean over repeats, interval, sizes, failed repeats.

    Rows of other methods than probe keep their own coordinates.
    """
    if "classifier" in rows.columns or "layers" in rows.columns:
        return aggregate_cells(rows, metric).select(SUMMARY_COLUMNS)
    chosen = rows if metric is None else rows.filter(pl.col("metric") == metric)
    coordinates = [c for c in rows.columns if c not in NON_COORDINATES]
    ends = [pl.col(c).first() for c in ("low", "high") if c in rows.columns]
    folded = chosen.group_by(coordinates, maintain_order=True).agg(
        pl.col("value").mean().alias("mean"), *ends, pl.len().alias("repeats"),
        pl.col("value").alias("each"),
        *[pl.col("low").drop_nulls().n_unique().alias("own")] * ("low" in rows.columns),
    )  # fmt: skip
    return (_intervals_over_repeats(folded) if ends else folded).drop("each", "own", strict=False)


def _intervals_over_repeats(folded: pl.DataFrame) -> pl.DataFrame:
    """Where each repeat has an interval of its own, none is the mean's: the one over repeats."""
    found = []
    for line in folded.select("metric", "low", "high", "each", "own").iter_rows(named=True):
        low, high = line["low"], line["high"]
        if line["own"] > 1:
            spread = corrected_t(line["each"], n_train=1, n_test=0)
            floor, ceiling = METRIC_RANGES.get(line["metric"], (None, None))
            low = spread.low if floor is None else max(spread.low, floor)
            high = spread.high if ceiling is None else min(spread.high, ceiling)
        found.append((low, high))
    return folded.with_columns(
        pl.Series("low", [low for low, _ in found], dtype=pl.Float64),
        pl.Series("high", [high for _, high in found], dtype=pl.Float64),
    )


def method_table(method: str, kind: str) -> Callable[..., pl.DataFrame] | None:
    """A table that a method lays out itself, from its `table` module; None when it has none.

    `RANKING` lists the best cells, `HIGHLIGHTS` what is worth reading first, `PAPER_TABLE` the
    table of the method's paper.
    """
    if method not in methods():
        return None
    found: Callable[..., pl.DataFrame] | None = getattr(method_module(method, "table"), kind, None)
    return found


def highlights(rows: pl.DataFrame, record: RecordLike, most: int = 12) -> pl.DataFrame:
    """The lines worth reading first: a ranking where the method has one, else the first lines."""
    if (ranking := method_table(record.method, "RANKING")) is not None:
        return ranking(rows, record, most)
    own = method_table(record.method, "HIGHLIGHTS")
    if own is not None and (laid_out := own(rows)).height:
        return laid_out
    return summarize_cells(rows).head(2 * most)


def ranking_table(rows: pl.DataFrame, record: RunOrRuns, most: int = 12) -> pl.DataFrame:
    """The best cells and all baselines of the main metric, best first, ready to read."""
    metric = main_metric(rows, record)
    table = largest_training_size(aggregate_cells(rows, metric)).filter(
        pl.col("mean").is_not_null()
    )
    down = metric not in LOWER_IS_BETTER
    table = table.sort("mean", descending=down, maintain_order=True)
    # The words are the same for every model, so a text baseline is listed once per data set.
    flat = table.filter(pl.col("kind") == "baseline").unique(
        ["data", "classifier"], keep="first", maintain_order=True
    )
    top = table.filter(pl.col("kind") == "probe").head(most)
    chosen = pl.concat([top, flat]).sort("mean", descending=down, maintain_order=True)
    keep = [c for c in ("model", "data") if c in varying_columns(table, ("model", "data"))]
    return chosen.select(
        *keep,
        "kind",
        "layers",
        "pool",
        "classifier",
        "mean",
        "low",
        "high",
        "repeats",
    )


def formatted_rows(frame: pl.DataFrame) -> list[list[str]]:
    """Every value as people read it: three digits, dashes for nothing, one line per text."""
    return [
        [value_text(v, n) for n, v in zip(frame.columns, row, strict=True)] for row in frame.rows()
    ]


def value_text(value: Any, column: str = "") -> str:
    """One value of a table as text."""
    if value is None:
        return formats.DASH
    if isinstance(value, bool | str):
        return strip_control_characters(value)
    if isinstance(value, int) or column in COUNT_COLUMNS:
        return f"{int(value):,}"
    return formats.number(value) if isinstance(value, float) else strip_control_characters(value)


def strip_control_characters(value: object) -> str:
    """Text without control characters, so that no data can steer a terminal or break a line."""
    line = re.sub(r"\s+", " ", str(value))
    return "".join(c for c in line if unicodedata.category(c) not in ("Cc", "Cf", "Cs"))


def to_markdown(frame: pl.DataFrame) -> str:
    """A GitHub table; numbers to the right."""
    rule = ["---:" if _is_numeric(frame, name) else "---" for name in frame.columns]
    lines = [list(map(_markdown_cell, frame.columns)), rule]
    lines += [[_markdown_cell(cell) for cell in row] for row in formatted_rows(frame)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _markdown_cell(text: str) -> str:
    escaped = re.sub(r"([\\`*_\[\]|#])", r"\\\1", text)
    return escaped.replace("&", "&amp;").replace("<", "&lt;")


def to_csv(frame: pl.DataFrame) -> str:
    """Comma-separated values at full precision."""
    return frame.write_csv(float_precision=None)


def to_latex(frame: pl.DataFrame) -> str:
    """A booktabs table; every special character escaped."""
    columns = "".join("r" if _is_numeric(frame, name) else "l" for name in frame.columns)
    lines = [[_latex_cell(n.replace("_", " ")) for n in frame.columns]]
    lines += [[_latex_cell(cell) for cell in row] for row in formatted_rows(frame)]
    head, *body = [" & ".join(line) + r" \\" for line in lines]
    start, end = rf"\begin{{tabular}}{{{columns}}}", r"\end{tabular}"
    return "\n".join([start, r"\toprule", head, r"\midrule", *body, r"\bottomrule", end]) + "\n"


def _latex_cell(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def rich_table(frame: pl.DataFrame, *, title: str | None = None) -> Table:
    """The frame for a terminal; text from data can't carry markup or control codes."""
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for name in frame.columns:
        right = _is_numeric(frame, name)
        table.add_column(
            name.replace("_", " "), justify="right" if right else "left", no_wrap=right
        )
    for row in formatted_rows(frame):
        table.add_row(*[Text(cell) for cell in row])
    return table


def to_text(frame: pl.DataFrame, width: int = 120) -> str:
    """The frame as plain text for a terminal or a file."""
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(rich_table(frame))
    return out.getvalue()


def _is_numeric(frame: pl.DataFrame, name: str) -> bool:
    return frame.schema[name].is_numeric()


TABLE_FORMATS: dict[str, Callable[[pl.DataFrame], str]] = {
    "table": to_text,
    "markdown": to_markdown,
    "csv": to_csv,
    "latex": to_latex,
}
