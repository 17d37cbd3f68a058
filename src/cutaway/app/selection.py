"""The runs selected in the overview's table: verdict, comparison, provenance."""

from collections.abc import Sequence

import streamlit as st

from cutaway.app import widgets as parts
from cutaway.app.pages import PAGES
from cutaway.report.compare import compare_runs
from cutaway.store.results import Record

MAX_PROVENANCE = 6


def show(records: Sequence[Record]) -> None:
    """Draw the verdict of one run or a comparison of several, and their provenance."""
    with st.container(horizontal=True):
        for method in dict.fromkeys(record.method for record in records):
            mine = [r for r in records if r.method == method]
            if method in PAGES and st.button(
                f"Open {len(mine)} in {method.capitalize()}", type="primary", key=f"open-{method}"
            ):
                open_runs(mine)
    if len(records) > 1:
        with parts.errors_as_messages():
            parts.draw_run_figure("compare", compare_runs(records), records, key="compare")
    parts.verdict_box(records)
    with st.expander("Provenance"):
        for record in records[:MAX_PROVENANCE]:
            parts.provenance_table(record)


def open_runs(records: Sequence[Record]) -> None:
    """Go to the method's page with these runs selected."""
    method = records[0].method
    st.session_state[f"{method}-runs"] = [record.address for record in records]
    st.switch_page(st.session_state["pages"][method])
