"""A method's page: one or several runs, filtered alike, seen together or side by side."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from cutaway.app import widgets as parts
from cutaway.app.escape import escape_markdown
from cutaway.app.library import Library, current_library
from cutaway.app.pages import PAGES
from cutaway.core.errors import CutawayError, Missing
from cutaway.report import tables
from cutaway.report.cells import failed_cells, fill_missing_columns, measured_metrics, metric_label
from cutaway.report.figures import figures_of
from cutaway.report.method_page import MethodPage
from cutaway.report.overview import local_time
from cutaway.report.records import CombinedRuns, RunOrRuns, is_imported, run_title
from cutaway.store.results import Record

MAX_RUNS = 6


def show(method: str) -> None:
    """Draw the page."""
    page, shelf = PAGES[method], current_library()
    st.title(method.capitalize())
    st.caption(page.question)
    if not shelf.of(method):
        st.info(
            f"No {method} runs yet. Start one on the page **New run**.", icon=":material/explore:"
        )
        return
    records = choose_runs(shelf, method)
    if not records:
        st.warning("Choose at least one run.")
        return
    readable = [record for record in records if _can_read(record)]
    if readable:
        parts.verdict_box(readable)
        _draw_views(page, readable)


def choose_runs(shelf: Library, method: str) -> list[Record]:
    """The runs picked in the box; the newest one at first."""
    known = {record.address: record for record in shelf.of(method)}
    asked = [a for a in st.session_state.get(f"{method}-runs", []) if a in known]
    linked = [a for a in st.query_params.get("run", "").split(",") if a in known]
    st.session_state[f"{method}-runs"] = (asked or linked or list(known)[:1])[:MAX_RUNS]
    picked = st.multiselect(
        "Runs",
        list(known),
        key=f"{method}-runs",
        max_selections=MAX_RUNS,
        format_func=lambda address: _label(known[address]),
        help=f"Up to {MAX_RUNS} runs, own or imported.",
    )
    st.query_params["run"] = ",".join(picked)
    return [known[address] for address in picked]


def _label(record: Record) -> str:
    origin = "imported" if is_imported(record) else local_time(record.created)
    return f"{run_title(record)} · {origin} · {record.address[:6]}"


def _can_read(record: Record) -> bool:
    """Whether the run's rows are there; a message in place when not."""
    with parts.errors_as_messages():
        return record.rows is not None
    return False


def _draw_views(page: MethodPage, records: Sequence[Record]) -> None:
    """Filters, then the chosen view of what is left."""
    keep = row_filter(page, _rows(page, _drawable(records)))
    options = [*page.views, "Table", "Provenance"]
    view = st.segmented_control("View", options, default=options[0], key="view", required=True)
    beside = len(records) > 1 and st.toggle(
        "Side by side",
        value=page.apart,
        key="beside",
        help="One column per run instead of all runs in one figure.",
    )
    groups = [[one] for one in records] if beside else [list(records)]
    for column, group in zip(st.columns(len(groups)), groups, strict=True):
        with column:
            if beside:
                st.subheader(escape_markdown(run_title(group[0])))
            _draw_view(page, str(view), group, keep)


def _drawable(records: Sequence[Record]) -> RunOrRuns:
    return records[0] if len(records) == 1 else CombinedRuns(tuple(records))


def _rows(page: MethodPage, drawable: RunOrRuns) -> pl.DataFrame:
    return fill_missing_columns(drawable.rows) if page.method == "probe" else drawable.rows


def row_filter(page: MethodPage, rows: pl.DataFrame) -> pl.Expr:
    """What the reader wants to see, as a condition on rows."""
    boxes = st.columns(len(page.filters) + page.one_metric)
    keep = pl.lit(True)
    if page.one_metric:
        chosen = boxes[0].selectbox(
            "Metric", measured_metrics(rows), format_func=metric_label, key="metric"
        )
        keep = keep & (pl.col("metric") == chosen)
    # A baseline's own names (the words' "pooler") are nothing to choose from.
    own = rows.filter(pl.col("kind") == "probe") if page.method == "probe" else rows
    for box, column in zip(boxes[page.one_metric :], page.filters, strict=True):
        known = own[column].drop_nulls().unique(maintain_order=True).to_list()
        wanted = box.multiselect(
            column.capitalize(), known, key=f"keep-{column}", placeholder="all"
        )
        if wanted:
            keep = keep & _matches(column, wanted)
    return keep


def _matches(column: str, wanted: Sequence[Any]) -> pl.Expr:
    """Rows with a wanted value; text baselines have no pooler or classifier to be filtered by."""
    fits = pl.col(column).is_in(list(wanted))
    return fits | (pl.col("kind") == "baseline") if column in ("pool", "classifier") else fits


def _draw_view(page: MethodPage, view: str, records: Sequence[Record], keep: pl.Expr) -> None:
    together = _drawable(records)
    rows = _rows(page, together).filter(keep)
    if view == "Provenance":
        for record in records:
            with st.container(border=True):
                parts.provenance_table(record)
    elif view == "Table":
        _table(page, rows, key=records[0].address)
    else:
        _figures(page, page.views[view], rows, together, records)


def _figures(
    page: MethodPage,
    names: Sequence[str],
    rows: pl.DataFrame,
    together: RunOrRuns,
    records: Sequence[Record],
) -> None:
    """The figures these rows can give, and a line about those they can't."""
    lacking = []
    for name in names:
        drawn = _draw(page.method, name, rows, together)
        if isinstance(drawn, go.Figure):
            parts.draw_run_figure(name, drawn, records, key=f"{name}-{records[0].address}")
        elif isinstance(drawn, Missing):
            lacking.append(f"- {escape_markdown(drawn)}")
        else:
            st.warning(escape_markdown(drawn), icon=":material/info:")
    if lacking:
        none = len(lacking) == len(names)
        word = "figure" if len(lacking) == 1 else "figures"
        some = f"{len(lacking)} more {word}, and what is missing for it"
        # Nothing else stands in this view: the reason is what the reader came for.
        with st.expander("Nothing to draw from these runs yet" if none else some, expanded=none):
            st.markdown("\n".join(lacking))


def _draw(
    method: str, name: str, rows: pl.DataFrame, together: RunOrRuns
) -> go.Figure | CutawayError:
    try:
        return figures_of(method)[name](rows, together)
    except CutawayError as error:
        return error


def _table(page: MethodPage, rows: pl.DataFrame, *, key: str) -> None:
    """All cells that are left, and what failed."""
    table = tables.summarize_cells(rows)
    st.dataframe(
        table.filter(pl.col("mean").is_not_null()),
        hide_index=True,
        column_config={
            name: st.column_config.NumberColumn(name, format="%.3f")
            for name in ("mean", "low", "high")
        },
    )
    with st.container(horizontal=True):
        for kind, ending in (("csv", "csv"), ("markdown", "md"), ("latex", "tex")):
            st.download_button(
                kind.upper() if kind == "csv" else kind.capitalize(),
                data=tables.TABLE_FORMATS[kind](table),
                file_name=f"cutaway-{page.method}.{ending}",
                key=f"table-{kind}-{key}",
                icon=":material/download:",
                on_click="ignore",
            )
    failed = failed_cells(rows)
    if failed.height:
        st.subheader("Failed cells")
        st.dataframe(failed, hide_index=True)
