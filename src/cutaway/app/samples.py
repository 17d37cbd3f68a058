"""The samples of a run: filtered, a page at a time, and the lens grid of a selected one.

The file is never loaded: each page reads the rows that it shows.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import streamlit as st

from cutaway.app import widgets
from cutaway.app.escape import escape_markdown
from cutaway.store.records import SAMPLES_FILE
from cutaway.store.results import Record
from cutaway.studies.live.figures import lens_figure

PAGE_ROWS = 50
MAX_CHOICES = 100
"""A column with more values than this is not offered as a filter."""
# Columns about one sample: there is nothing to choose from.
SAMPLE_COLUMNS = frozenset(
    {"row", "position", "text_digest", "text", "token", "score", "agree", "rank", "surprisal",
     "kl", "entropy", "loss"}
)  # fmt: skip
HIDDEN_COLUMNS = ("text_digest", "token_ids", "scores")
LENS_COLUMNS = frozenset({"row", "position", "token", "kind", "layer", "tokens", "scores"})
AGREEMENT = {"all": None, "agrees with the full model": True, "differs": False}


def has_samples(record: Record) -> bool:
    """Whether the run has kept its samples."""
    return SAMPLES_FILE in record.files


def show(record: Record) -> None:
    """Filters, one page of the samples, and the lens grid of the selected one."""
    path, key = verified_path(str(record.path), str(record.files.get(SAMPLES_FILE))), record.address
    samples = pl.scan_parquet(path)
    columns = samples.collect_schema().names()
    chosen = samples.filter(sample_filter(path, columns, key))
    total = int(chosen.select(pl.len()).collect().item())
    if not total:
        st.warning("No sample matches these filters. Clear one of them to see more.")
        return
    pages = -(-total // PAGE_ROWS)
    number = 1
    if pages > 1:
        number = int(st.number_input(f"Page (of {pages:,})", 1, pages, key=f"samples-page-{key}"))
    start = (number - 1) * PAGE_ROWS
    shown = chosen.slice(start, PAGE_ROWS).collect()
    st.caption(f"Samples {start + 1:,} to {start + shown.height:,} of {total:,}")
    selected = _table(shown, can_select=set(columns) >= LENS_COLUMNS, key=key)
    if selected is not None:
        show_sample(record, samples, selected)


@st.cache_resource(max_entries=32, show_spinner="Reading the samples …")
def verified_path(folder: str, digest: str) -> Path:
    """The path of the samples, after checking their checksum once."""
    from cutaway.store.records import read_record

    return read_record(Path(folder)).file(SAMPLES_FILE)


@st.cache_data(max_entries=64, show_spinner=False)
def choices(path: Path, column: str) -> list[Any]:
    """The values of a column to choose from; none if there are too many, or only one."""
    values = pl.scan_parquet(path).select(pl.col(column).drop_nulls().unique()).collect()
    found = values[column].sort().to_list()
    return found if 1 < len(found) <= MAX_CHOICES else []


def sample_filter(path: Path, columns: Sequence[str], key: str) -> pl.Expr:
    """The filters chosen by the reader, as a condition on samples."""
    schema = pl.scan_parquet(path).collect_schema()
    plain = [c for c in columns if c not in SAMPLE_COLUMNS and not schema[c].is_nested()]
    offered = {column: found for column in plain if (found := choices(path, column))}
    condition = pl.lit(True)
    boxes = st.columns(4) if offered else []
    for place, (column, known) in enumerate(offered.items()):
        wanted = boxes[place % 4].multiselect(
            column.capitalize(), known, key=f"samples-{column}-{key}", placeholder="all"
        )
        if wanted:
            condition = condition & pl.col(column).is_in(wanted)
    return condition & _flags(columns, key)


def _flags(columns: Sequence[str], key: str) -> pl.Expr:
    """Agreement, wrong answers and words of the text."""
    condition = pl.lit(True)
    if "agree" in columns:
        choice = st.segmented_control(
            "Agreement", list(AGREEMENT), default="all", key=f"samples-agree-{key}", required=True
        )
        wanted = AGREEMENT[str(choice)]
        condition = condition if wanted is None else condition & (pl.col("agree") == wanted)
    if {"truth", "answer"} <= set(columns) and st.toggle(
        "Show the wrong rows", key=f"samples-wrong-{key}", help="The answer is not the truth."
    ):
        condition = condition & (pl.col("truth") != pl.col("answer"))
    if "text" in columns:
        words = st.text_input("Text contains", key=f"samples-text-{key}")
        if words:
            condition = condition & pl.col("text").str.contains(words, literal=True)
    return condition


def _table(shown: pl.DataFrame, *, can_select: bool, key: str) -> dict[str, Any] | None:
    """Draw one page of samples; returns the selected one."""
    hidden = [c for c in HIDDEN_COLUMNS if c in shown.columns and "text" in shown.columns]
    visible = shown.drop(hidden)
    if not can_select:
        st.dataframe(visible, hide_index=True)
        return None
    event: Any = st.dataframe(
        visible, hide_index=True, on_select="rerun", selection_mode="single-row",
        key=f"samples-table-{key}",
    )  # fmt: skip
    rows = [row for row in event["selection"]["rows"] if row < shown.height]
    if not rows:
        st.caption("Select a sample to see what every layer predicts there.")
        return None
    return shown.row(rows[0], named=True)


def show_sample(record: Record, samples: pl.LazyFrame, selected: dict[str, Any]) -> None:
    """The text of a sample, and what every layer predicts at its marked tokens."""
    here = samples.filter((pl.col("row") == selected["row"]) & pl.col("tokens").is_not_null())
    cells = here.collect()
    st.text(cells["text"][0])
    kinds = cells["kind"].unique(maintain_order=True).to_list()
    kind = st.segmented_control(
        "Kind of map", kinds, default=selected["kind"], key=f"samples-map-{record.address}",
        required=True,
    )  # fmt: skip
    values = lens_values(cells.filter(pl.col("kind") == kind), str(kind))
    figure = lens_figure(values, str(kind))
    widgets.draw_run_figure("lens", figure, [record], key=f"samples-lens-{record.address}")
    marked = escape_markdown(" | ".join(values["tokens"]))
    st.caption(f"The columns are the marked tokens of this text: {marked}")


def lens_values(cells: pl.DataFrame, kind: str) -> dict[str, Any]:
    """The cells of one text and kind as a lens grid: layers by marked tokens."""
    ordered = cells.sort("layer", "position")
    layers = ordered["layer"].unique(maintain_order=True).to_list()
    tokens = ordered.filter(pl.col("layer") == layers[0])["token"].to_list()
    by_layer = [ordered.filter(pl.col("layer") == layer) for layer in layers]
    return {
        "layers": layers,
        "tokens": tokens,
        "words": {kind: [one["tokens"].to_list() for one in by_layer]},
        "probs": {kind: [one["scores"].to_list() for one in by_layer]},
        "agree": {kind: [one["agree"].to_list() for one in by_layer]},
    }
