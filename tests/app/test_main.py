from pathlib import Path

from streamlit.testing.v1 import AppTest

from cutaway.app import launch
from cutaway.catalog import methods

# Streamlit runs it as a script; importing it would draw the app.
SCRIPT = Path(launch.__file__).with_name("main.py")


def test_the_app_has_a_page_per_method_and_opens_with_the_overview(runs) -> None:
    app = AppTest.from_file(str(SCRIPT), default_timeout=60).run()
    assert not app.exception
    assert [title.value for title in app.title] == ["Overview"]
    assert set(app.session_state["pages"]) == {"overview", *methods(), "live", "new"}
