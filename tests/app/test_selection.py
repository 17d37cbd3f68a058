from streamlit.testing.v1 import AppTest

from tests.app.conftest import texts
from tests.report.fake_runs import probe_rows, save_run

SCRIPT = """
from cutaway.app import selection
from cutaway.app.library import current_library
selection.show(current_library().records)
"""


def show() -> AppTest:
    app = AppTest.from_string(SCRIPT, default_timeout=60).run()
    assert not app.exception
    return app


def test_one_run_shows_its_verdict_and_provenance(runs) -> None:
    record = save_run(runs)
    app = show()
    assert "reads it best" in app.info[0].value and record.command in texts(app)
    assert not app.get("plotly_chart")
    assert [button.label for button in app.button] == ["Open 1 in Probe"]


def test_several_runs_are_compared_in_a_figure(runs) -> None:
    save_run(runs, probe_rows(models=("tiny-lm",)), address="a1")
    save_run(runs, probe_rows(models=("large-lm",)), address="a2")
    app = show()
    assert len(app.get("plotly_chart")) == 1
    assert [button.label for button in app.button] == ["Open 2 in Probe"]
