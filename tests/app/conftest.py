import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from cutaway.app.launch import RUNS_VARIABLE
from cutaway.app.pages import PAGES


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """The folder the app shows; the tests stand in an empty place of their own."""
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv(RUNS_VARIABLE, str(place / "runs"))
    st.cache_resource.clear()
    return place / "runs"


@pytest.fixture
def page():
    """A page of the app, run once: `page("overview")`."""

    def run(name: str, **state) -> AppTest:
        module, argument = ("method", repr(name)) if name in PAGES else (name, "")
        text = f"from cutaway.app import {module}\n{module}.show({argument})"
        app = AppTest.from_string(text, default_timeout=60)
        for key, value in state.items():
            app.session_state[key] = value
        return app.run()

    return run


def texts(app: AppTest) -> str:
    """Everything a page says."""
    kinds = (
        "title",
        "caption",
        "markdown",
        "info",
        "warning",
        "error",
        "text",
        "code",
        "subheader",
    )
    return "\n".join(str(one.value) for kind in kinds for one in app.get(kind))
