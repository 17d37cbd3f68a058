"""A method's page: one or several runs with shared filters, in one figure or side by side."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from cutaway.app import samples, widgets
from cutaway.app.escape import escape_markdown
from cutaway.app.library import Library, current_library
from cutaway.app.pages import PAGES
from cutaway.core.errors import CutawayError, Missing
from cutaway.report import formats, tables
from cutaway.report.figures import figures_of
from cutaway.report.method_page import MethodPage
from cutaway.report.method_table import table_of
from cutaway.report.metric_labels import VALIDATION_SUFFIX, measured_metrics, metric_label
from cutaway.report.records import CombinedRuns, RunOrRuns, run_title
from cutaway.report.summary import failed_cells
from cutaway.store.results import Record

MAX_RUNS = 6


def show(method: str) -> None:
    """Draw the page."""
    page, library = PAGES[method], current_library()
    st.title(method.capitalize())
    st.caption(page.question)
    if not library.of(method):
        st.info(
            f"No {method} runs yet. Start one on the page **New run**.", icon=":material/explore:"
        )
        return
    records = choose_runs(library, method)
    if not records:
        st.warning("Choose at least one run.")
        return
    readable = [record for record in records if _can_read(record)]
    if readable:
        widgets.verdict_box(readable)
        _draw_views(page, readable)


def choose_runs(library: Library, method: str) -> list[Record]:
    """The runs selected in the box; at first the newest one that has figures."""
    lines = library.listed.filter(pl.col("method") == method)
    known = {line["address"]: line for line in lines.iter_rows(named=True)}
    selected = [a for a in st.session_state.get(f"{method}-runs", []) if a in known]
    linked = [a for a in st.query_params.get("run", "").split(",") if a in known]
    first = [] if selected or linked else _first_run(library, method)
    st.session_state[f"{method}-runs"] = (selected or linked or first)[:MAX_RUNS]
    chosen = st.multiselect(
        "Runs",
        list(known),
        key=f"{method}-runs",
        max_selections=MAX_RUNS,
        format_func=lambda address: _label(known[address]),
        help=f"Up to {MAX_RUNS} runs, own or imported.",
    )
    st.query_params["run"] = ",".join(chosen)
    return [record for a in chosen if (record := library.find(a, method)) is not None]


def _first_run(library: Library, method: str) -> list[str]:
    """The newest run that has figures (generated texts have a table only), else the newest."""
    records = library.of(method)
    drawn = (r.address for r in records if "max_new_tokens" not in r.spec)
    return list(islice(drawn, 1)) or [r.address for r in records[:1]]


def _label(line: Mapping[str, Any]) -> str:
    origin = "imported" if line["origin"] == "imported" else line["created"]
    names = (formats.shorten(line[name]) for name in ("model", "data"))
    return f"{' on '.join(names)} · {origin} · {line['address'][:6]}"


def _can_read(record: Record) -> bool:
    """Whether the run's rows can be read; shows the reason if not."""
    with widgets.errors_as_messages():
        return record.rows is not None
    return False


def _draw_views(page: MethodPage, records: Sequence[Record]) -> None:
    """Filters, then the chosen view of the remaining rows."""
    condition = row_filter(page, _rows(page, _combined(records)))
    kept = ["Samples"] if any(map(samples.has_samples, records)) else []
    options = [*page.views, "Table", *kept, "Provenance"]
    view = st.segmented_control("View", options, default=options[0], key="view", required=True)
    beside = len(records) > 1 and st.toggle(
        "Side by side",
        value=page.side_by_side,
        key="beside",
        help="One column per run instead of all runs in one figure.",
    )
    groups = [[one] for one in records] if beside else [list(records)]
    for column, group in zip(st.columns(len(groups)), groups, strict=True):
        with column:
            if beside:
                st.subheader(escape_markdown(run_title(group[0])))
            _draw_view(page, str(view), group, condition)


def _combined(records: Sequence[Record]) -> RunOrRuns:
    return records[0] if len(records) == 1 else CombinedRuns(tuple(records))


def _rows(page: MethodPage, runs: RunOrRuns) -> pl.DataFrame:
    complete = table_of(page.method).complete
    return complete(runs.rows) if complete else runs.rows


def row_filter(page: MethodPage, rows: pl.DataFrame) -> pl.Expr:
    """The filters chosen by the reader, as a condition on rows."""
    boxes = st.columns(len(page.filters) + page.one_metric)
    condition = pl.lit(True)
    if page.one_metric:
        metric = boxes[0].selectbox(
            "Metric", measured_metrics(rows), format_func=metric_label, key="metric"
        )
        # With the scores on validation rows, by which cells are chosen.
        condition = condition & pl.col("metric").is_in([metric, metric + VALIDATION_SUFFIX])
    offered = rows.filter(pl.col("kind") == page.filter_kind) if page.filter_kind else rows
    for box, column in zip(boxes[page.one_metric :], page.filters, strict=True):
        known = offered[column].drop_nulls().unique(maintain_order=True).to_list()
        wanted = box.multiselect(
            column.capitalize(), known, key=f"keep-{column}", placeholder="all"
        )
        if wanted:
            matches = pl.col(column).is_in(wanted)
            if column in page.baselines_stay:
                matches = matches | (pl.col("kind") == "baseline")
            condition = condition & matches
    return condition


def _draw_view(page: MethodPage, view: str, records: Sequence[Record], condition: pl.Expr) -> None:
    runs = _combined(records)
    rows = _rows(page, runs).filter(condition)
    if view == "Provenance":
        for record in records:
            with st.container(border=True):
                widgets.provenance_table(record)
    elif view == "Samples":
        _samples(records)
    elif view == "Table":
        _table(page, rows, key=records[0].address)
    else:
        _figures(page, page.views[view], rows, runs, records)


def _samples(records: Sequence[Record]) -> None:
    """The samples of each run that has kept them."""
    for record in filter(samples.has_samples, records):
        if len(records) > 1:
            st.subheader(escape_markdown(run_title(record)))
        with widgets.errors_as_messages():
            samples.show(record)


def _figures(
    page: MethodPage,
    names: Sequence[str],
    rows: pl.DataFrame,
    runs: RunOrRuns,
    records: Sequence[Record],
) -> None:
    """The figures that can be drawn from these rows, and what the others lack."""
    lacking = []
    for name in names:
        figure = _draw(page.method, name, rows, runs)
        if isinstance(figure, go.Figure):
            widgets.draw_run_figure(name, figure, records, key=f"{name}-{records[0].address}")
        elif isinstance(figure, Missing):
            lacking.append(f"- {escape_markdown(figure)}")
        else:
            st.warning(escape_markdown(figure), icon=":material/info:")
    if lacking:
        none = len(lacking) == len(names)
        word = "figure" if len(lacking) == 1 else "figures"
        title = f"{len(lacking)} more {word}, and what is missing for it"
        # With nothing else to see, the reason is what the reader came for.
        with st.expander("Nothing to draw from these runs yet" if none else title, expanded=none):
            st.markdown("\n".join(lacking))


def _draw(method: str, name: str, rows: pl.DataFrame, runs: RunOrRuns) -> Any:
    """The figure, or the error that explains why there is none."""
    try:
        return figures_of(method)[name](rows, runs)
    except CutawayError as error:
        return error


def _table(page: MethodPage, rows: pl.DataFrame, *, key: str) -> None:
    """All cells of the filtered rows, and those that failed."""
    table = table_of(page.method).summary(rows)
    numbers = {
        name: st.column_config.NumberColumn(name, format="%.3f") for name in ("mean", "low", "high")
    }
    scored = table.filter(pl.col("mean").is_not_null())
    st.dataframe(scored, hide_index=True, column_config=numbers)
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
