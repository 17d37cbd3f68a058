import shlex

from streamlit.testing.v1 import AppTest

from cutaway.app.widgets import repeat_commands
from tests.report.fake_runs import save_run

ERRORS = """
import streamlit as st
from cutaway.app.widgets import errors_as_messages
from cutaway.core.errors import BadSpec
with errors_as_messages():
    raise BadSpec("layers *must* be numbers.")
st.text("after")
"""


def test_an_error_becomes_a_message_and_the_page_continues() -> None:
    app = AppTest.from_string(ERRORS).run()
    assert not app.exception and [one.value for one in app.text] == ["after"]
    assert app.warning[0].value.replace("\\", "") == "layers *must* be numbers."


def test_the_commands_measure_the_runs_again_and_draw_their_figures(tmp_path) -> None:
    folder = tmp_path / "my runs"
    records = [save_run(folder, address=name) for name in ("a1", "b2")]
    lines = repeat_commands(records).splitlines()
    assert lines[1:3] == [record.command for record in records]
    assert shlex.split(lines[-1])[1:5] == ["report", "a1", "b2", f"--runs={folder}"]


def test_several_runs_show_the_first_sentence_of_each(runs) -> None:
    for name in ("a1", "b2"):
        save_run(runs, address=name)
    app = AppTest.from_string(
        "from cutaway.app import widgets\nfrom cutaway.app.library import current_library\n"
        "widgets.verdict_box(current_library().records)"
    ).run()
    assert not app.exception and app.info[0].value.count("reads it best") == 2
