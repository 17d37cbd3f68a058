"""Parts that all pages share: figures with command and data, verdicts, messages."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import plotly.graph_objects as go
import streamlit as st

from cutaway.app.escape import escape_markdown
from cutaway.core.errors import CutawayError
from cutaway.core.shell_words import join_words
from cutaway.report import theme
from cutaway.report.export import figure_csv
from cutaway.report.provenance import provenance
from cutaway.report.records import RecordLike, run_title, verdict_sentences


@contextmanager
def errors_as_messages() -> Iterator[None]:
    """Show an error as a message in place; the rest of the page still works."""
    try:
        yield
    except CutawayError as error:
        st.warning(escape_markdown(error), icon=":material/info:")


def colour_mode() -> theme.ColourMode:
    """The theme the reader has chosen, light or dark."""
    return "dark" if st.context.theme.type == "dark" else "light"


def draw_run_figure(
    name: str, figure: go.Figure, records: Sequence[RecordLike], *, key: str
) -> None:
    """Draw a figure of runs with its caption, the command that repeats it, and its data as CSV."""
    draw_figure(name, figure, repeat_commands(records), key=key)


def draw_figure(name: str, figure: go.Figure, command: str, *, key: str, wide: int = 0) -> None:
    """Draw a figure with its caption, the command that repeats it, its data as CSV and as PNG.

    A figure that needs `wide` pixels scrolls horizontally on a narrower screen.
    """
    if wide:
        # Safe: nothing in this style comes from data.
        frame = f".st-key-figure-{key} [data-testid='stFullScreenFrame']"
        st.html(f"<style>{frame} {{min-width: {wide}px;}}</style>")
    with st.container(border=True):
        st.plotly_chart(
            theme.with_colour_mode(figure, colour_mode()),
            theme=None,
            key=f"figure-{key}",
            config={**theme.plotly_config(f"cutaway-{name}"), "displayModeBar": True},
        )
        st.caption(escape_markdown(theme.caption(figure)))
        with st.container(horizontal=True):
            with st.popover("Command", icon=":material/terminal:"):
                st.code(command, language="bash", wrap_lines=True)
            st.download_button(
                "Data (CSV)",
                data=lambda: figure_csv(figure),
                file_name=f"cutaway-{name}.csv",
                mime="text/csv",
                key=f"csv-{key}",
                icon=":material/download:",
                on_click="ignore",
            )


def repeat_commands(records: Sequence[RecordLike]) -> str:
    """The commands that measure these runs again and draw their figures as files."""
    again = [record.command for record in records if record.command]
    folder = Path(records[0].path).parent.parent if records else Path("runs")
    addresses = [record.address for record in records]
    drawn = join_words(["cutaway", "report", *addresses, f"--runs={folder}", "--figures=png"])
    return "\n".join(["# measure again", *again, "", "# draw as files", drawn])


def verdict_box(records: Sequence[RecordLike]) -> None:
    """The verdict of one run, or the first sentence of each of several."""
    if len(records) == 1:
        first, *rest = verdict_sentences(records[0]) or [
            "This run has no verdict; see its figures below."
        ]
        lines = [
            f"**{escape_markdown(first)}**",
            "",
            *[f"- {escape_markdown(one)}" for one in rest],
        ]
    else:
        lines = [
            f"- **{escape_markdown(run_title(one))}:** {escape_markdown(_first_sentence(one))}"
            for one in records
        ]
    st.info("\n".join(lines), icon=":material/lightbulb:")


def _first_sentence(record: RecordLike) -> str:
    return next(iter(verdict_sentences(record)), "no verdict.")


def provenance_table(record: RecordLike) -> None:
    """The run's provenance and the command that repeats it."""
    st.markdown(f"**{escape_markdown(run_title(record))}**")
    for label, value in provenance(record):
        left, right = st.columns([1, 5])
        left.caption(escape_markdown(label))
        right.text(value)
    if record.command:
        st.code(record.command, language="bash", wrap_lines=True)
