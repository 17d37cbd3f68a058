"""The overview: all runs on one page, to search, filter, compare and open."""

import base64
from html import escape
from typing import Any

import polars as pl
import streamlit as st

from cutaway.app import lazy_pages
from cutaway.app.escape import escape_markdown
from cutaway.app.library import Library, current_library
from cutaway.report import formats
from cutaway.report.drawing.svg import description, svg_text
from cutaway.report.drawing.values import Drawing
from cutaway.report.metric_labels import metric_label
from cutaway.studies.draw.saved import all_drawings

SEARCH_COLUMNS = ("model", "data", "method", "address", "where", "verdict", "metric", "origin")
FILTER_COLUMNS = ("method", "model", "data")
MAX_LINES = 500
"""Of the table; the search looks at all runs."""


def show() -> None:
    """Draw the page."""
    library = current_library()
    st.title("Overview")
    if library.listed.is_empty():
        _show_introduction(library)
        _show_unreadable(library)
        return
    if library.tour:
        st.info(
            "You have no runs yet, so these are the tour's. Start one on the page **New run**, or "
            "from a terminal; it appears here when it is done.",
            icon=":material/explore:",
        )
    show_drawing(library)
    chosen = filter_runs(library.listed.with_row_index("place"))
    more = f"; the newest {MAX_LINES:,} are listed" if chosen.height > MAX_LINES else ""
    st.caption(f"{chosen.height:,} of {library.listed.height:,} runs{more}")
    if chosen.is_empty():
        st.warning("No run matches these filters. Clear one of them to see more.")
    else:
        selected = [library.records[i] for i in _table(chosen.head(MAX_LINES))]
        if selected:
            lazy_pages.show_page("selection", selected)
        else:
            st.caption("Select a run to read its verdict, several to compare them.")
    _show_unreadable(library)


def show_drawing(library: Library) -> None:
    """The drawing of the model chosen; how to make one, if there is none."""
    drawings = all_drawings(library.folder)
    if not drawings:
        st.caption("One picture of a model, layer by layer: `cutaway draw MODEL`")
        return
    names = [drawing.model for drawing in drawings]
    chosen = 0
    if len(names) > 1:
        chosen = int(st.selectbox("Model", range(len(names)), format_func=names.__getitem__) or 0)
    st.html(drawing_image(drawings[chosen], st.context.theme.type))
    with st.expander("What it shows"):
        st.markdown("\n".join(f"- {escape_markdown(line)}" for line in drawings[chosen].verdict))


def drawing_image(drawing: Drawing, theme: str | None) -> str:
    """The picture as an image: Streamlit removes SVG from HTML. On a phone it scrolls."""
    text = svg_text(drawing, mode="dark" if theme == "dark" else "light")
    source = base64.b64encode(text.encode()).decode("ascii")
    return (
        '<div style="overflow-x: auto"><img style="width: 100%; min-width: 60rem" '
        f'src="data:image/svg+xml;base64,{source}" alt="{escape(description(drawing))}"></div>'
    )


def filter_runs(listed: pl.DataFrame) -> pl.DataFrame:
    """The runs that match the search box and the filters."""
    search, *boxes = st.columns([2, 1, 1, 1])
    words = search.text_input(
        "Search", placeholder="model, data, layer, words of a verdict …", key="search"
    )
    for word in words.lower().split():
        hit = pl.concat_str(SEARCH_COLUMNS, separator=" ", ignore_nulls=True).str.to_lowercase()
        listed = listed.filter(hit.str.contains(word, literal=True))
    for box, column in zip(boxes, FILTER_COLUMNS, strict=True):
        known = sorted(listed[column].unique().to_list())
        wanted = box.multiselect(
            column.capitalize(), known, key=f"only-{column}", placeholder="all"
        )
        if wanted:
            listed = listed.filter(pl.col(column).is_in(wanted))
    return listed


def _table(chosen: pl.DataFrame) -> list[int]:
    """Draw the table of runs; returns the positions of the selected ones."""
    event = st.dataframe(
        # Streamlit would load pandas for any other kind of table, which delays the first page.
        display_table(chosen).to_arrow(),
        hide_index=True,
        on_select="rerun",
        selection_mode="multi-row",
        key="runs",
        height=min(36 * (chosen.height + 1) + 4, 460),
        column_config={
            "model": st.column_config.TextColumn("model", width="medium"),
            "data": st.column_config.TextColumn("data", width="medium"),
            "score": st.column_config.TextColumn("score", width="medium"),
            "baseline": st.column_config.NumberColumn("baseline", format="%.3f"),
        },
    )
    rows = [row for row in event["selection"]["rows"] if row < chosen.height]
    return chosen["place"].gather(rows).to_list() if rows else []


def display_table(listed: pl.DataFrame) -> pl.DataFrame:
    """The runs formatted for reading: score with interval, time in minutes."""
    lines: list[dict[str, Any]] = [
        {
            "model": line["model"],
            "data": line["data"],
            "score": _score(line),
            "baseline": line["baseline"],
            "where": line["where"],
            "method": line["method"],
            "time": formats.duration(line["seconds"]),
            "made": "imported" if line["origin"] == "imported" else line["created"],
            "address": line["address"],
        }
        for line in listed.iter_rows(named=True)
    ]
    return pl.DataFrame(lines, schema_overrides={"baseline": pl.Float64})


def _score(line: dict[str, Any]) -> str:
    if line["score"] is None:
        return formats.DASH
    name = f"{metric_label(line['metric'])} " if line["metric"] else ""
    return name + formats.interval(line["score"], line["low"], line["high"])


def _show_introduction(library: Library) -> None:
    """What the app is, shown when there are no runs."""
    st.markdown(
        "Cutaway opens a language model the way a cutaway drawing opens an engine: what each "
        "layer encodes, how certain that is, and how far a bag of words gets. Results appear here."
    )
    st.markdown("**Try it** on the bundled model, about ten minutes on a laptop:")
    st.code("cutaway tour", language="bash")
    st.markdown("**Start a run** on the page *New run*, or from a terminal:")
    st.code("cutaway probe --model smollm2-135m --data gen:sentiment --layers all", language="bash")
    st.caption(f"Runs are read from {escape_markdown(library.folder)}")


def _show_unreadable(library: Library) -> None:
    """List runs that can't be read, with the reason."""
    if not library.broken:
        return
    word = "run" if len(library.broken) == 1 else "runs"
    with st.expander(f"{len(library.broken)} {word} can't be read", icon=":material/warning:"):
        st.caption("The others are not affected. Repeat a run's command to make it again.")
        st.dataframe(
            pl.DataFrame(library.broken, schema=["folder", "reason"], orient="row").to_arrow(),
            hide_index=True,
        )
