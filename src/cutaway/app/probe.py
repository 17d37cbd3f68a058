"""The probe page: one or several runs, filtered alike, seen together or side by side."""

from collections.abc import Sequence

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from cutaway.app import parts
from cutaway.app.library import Library, library
from cutaway.core.errors import CutawayError, Missing
from cutaway.report import tables
from cutaway.report.cells import complete, failures, metric_words, metrics
from cutaway.report.figures import METHODS
from cutaway.report.overview import when
from cutaway.report.records import Drawable, Together, headline, imported
from cutaway.store.results import Record

METHOD = "probe"
# Which figures stand together under one heading.
VIEWS: dict[str, tuple[str, ...]] = {
    "Layers": ("layers", "heatmap"),
    "Comparison": ("classifiers", "curve", "sizes"),
    "Inside the best probe": ("confusion", "roc", "scores", "projection", "losses"),
}
FILTERS = ("model", "data", "pool", "classifier")
MOST_RUNS = 6


def show() -> None:
    """Draw the page."""
    shelf = library()
    st.title("Probe")
    st.caption("What can be read off the hidden layers, and is it more than the words give away?")
    if not shelf.of(METHOD):
        st.info("No probe runs yet. Start one on the page **New run**.", icon=":material/explore:")
        return
    records = choose(shelf)
    if not records:
        st.warning("Choose at least one run.")
        return
    readable = [record for record in records if _can_read(record)]
    if readable:
        parts.verdict_box(readable)
        _views(readable)


def choose(shelf: Library) -> list[Record]:
    """The runs picked in the box; the newest one at first."""
    known = {record.address: record for record in shelf.of(METHOD)}
    asked = [a for a in st.session_state.get(f"{METHOD}-runs", []) if a in known]
    linked = [a for a in st.query_params.get("run", "").split(",") if a in known]
    st.session_state[f"{METHOD}-runs"] = (asked or linked or list(known)[:1])[:MOST_RUNS]
    picked = st.multiselect(
        "Runs",
        list(known),
        key=f"{METHOD}-runs",
        max_selections=MOST_RUNS,
        format_func=lambda address: _label(known[address]),
        help=f"Up to {MOST_RUNS} runs, own or imported.",
    )
    st.query_params["run"] = ",".join(picked)
    return [known[address] for address in picked]


def _label(record: Record) -> str:
    origin = "imported" if imported(record) else when(record.created)
    return f"{headline(record)} · {origin} · {record.address[:6]}"


def _can_read(record: Record) -> bool:
    """Whether the run's rows are there; a message in place when not."""
    with parts.in_place():
        return record.rows is not None
    return False


def _views(records: Sequence[Record]) -> None:
    """Filters, then the chosen view of what is left."""
    keep, metric = filters(complete(_drawable(records).rows))
    options = [*VIEWS, "Table", "Provenance"]
    view = st.segmented_control("View", options, default=options[0], key="view", required=True)
    beside = len(records) > 1 and st.toggle(
        "Side by side", key="beside", help="One column per run instead of all runs in one figure."
    )
    groups = [[one] for one in records] if beside else [list(records)]
    for column, group in zip(st.columns(len(groups)), groups, strict=True):
        with column:
            if beside:
                st.subheader(parts.quiet(headline(group[0])))
            _view(str(view), group, keep, metric)


def _drawable(records: Sequence[Record]) -> Drawable:
    return records[0] if len(records) == 1 else Together(tuple(records))


def filters(rows: pl.DataFrame) -> tuple[pl.Expr, str]:
    """What the reader wants to see: a condition on rows, and the metric."""
    probes = rows.filter(pl.col("kind") == "probe")
    boxes = st.columns(len(FILTERS) + 1)
    measured = metrics(probes if probes.height else rows) or ["accuracy"]
    metric = boxes[0].selectbox("Metric", measured, format_func=metric_words, key="metric")
    keep = pl.lit(True)
    for box, column in zip(boxes[1:], FILTERS, strict=True):
        known = probes[column].unique(maintain_order=True).to_list()
        wanted = box.multiselect(
            column.capitalize(), known, key=f"keep-{column}", placeholder="all"
        )
        if wanted:
            keep = keep & _fits(column, wanted)
    return keep, str(metric)


def _fits(column: str, wanted: Sequence[str]) -> pl.Expr:
    """Rows with a wanted value; text baselines have no pooler or classifier to be filtered by."""
    fits = pl.col(column).is_in(list(wanted))
    return fits | (pl.col("kind") == "baseline") if column in ("pool", "classifier") else fits


def _view(view: str, records: Sequence[Record], keep: pl.Expr, metric: str) -> None:
    together = _drawable(records)
    rows = complete(together.rows).filter(keep)
    if view == "Provenance":
        for record in records:
            with st.container(border=True):
                parts.facts_table(record)
    elif view == "Table":
        _table(rows, metric, key=records[0].address)
    else:
        _figures(VIEWS[view], rows.filter(pl.col("metric") == metric), together, records)


def _figures(
    names: Sequence[str], rows: pl.DataFrame, together: Drawable, records: Sequence[Record]
) -> None:
    """The figures these rows can give, and a line about those they can't."""
    lacking = []
    for name in names:
        drawn = _draw(name, rows, together)
        if isinstance(drawn, go.Figure):
            parts.figure_card(name, drawn, records, key=f"{name}-{records[0].address}")
        elif isinstance(drawn, Missing):
            lacking.append(f"- {parts.quiet(drawn)}")
        else:
            st.warning(parts.quiet(drawn), icon=":material/info:")
    if lacking:
        word = "figure" if len(lacking) == 1 else "figures"
        with st.expander(f"{len(lacking)} more {word}, and what is missing for it"):
            st.markdown("\n".join(lacking))


def _draw(name: str, rows: pl.DataFrame, together: Drawable) -> go.Figure | CutawayError:
    try:
        return METHODS[METHOD][name](rows, together)
    except CutawayError as error:
        return error


def _table(rows: pl.DataFrame, metric: str, *, key: str) -> None:
    """All cells of the metric, and what failed."""
    table = tables.summary(rows, metric)
    st.dataframe(
        table.drop("metric").filter(pl.col("mean").is_not_null()),
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
                data=tables.TABLES[kind](table),
                file_name=f"cutaway-probe.{ending}",
                key=f"table-{kind}-{key}",
                icon=":material/download:",
                on_click="ignore",
            )
    failed = failures(rows)
    if failed.height:
        st.subheader("Failed cells")
        st.dataframe(failed, hide_index=True)
