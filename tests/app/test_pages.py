"""The pages of every method, on rows as its recipe writes them."""

import json

import polars as pl
import pytest

from cutaway.app.pages import PAGES
from cutaway.methods.nextword.details import DETAILS_FILE
from cutaway.report.export import figure_csv
from cutaway.report.figures import figures
from cutaway.store.results import results, save_record
from tests.app.conftest import texts
from tests.methods.finetune import test_figures as finetune
from tests.methods.graft import test_figures as graft
from tests.methods.inject import test_figures as inject
from tests.methods.nextword import run_rows as nextword
from tests.methods.shortcut import test_figures as shortcut

ROWS: dict[str, pl.DataFrame] = {
    "finetune": finetune.ALL,
    "graft": graft.ALL,
    "inject": inject.rows_of(),
    "nextword": nextword.ALL,
    "shortcut": shortcut.ALL,
}
FILES = {"nextword": {DETAILS_FILE: json.dumps(nextword.DETAILS).encode()}}


def shelve(runs, method: str, address: str, rows: pl.DataFrame) -> None:
    """A run of the method on the disk."""
    save_record(
        runs, method=method, address=address, spec={}, summary={"verdict": [f"{method} found it."]},
        baselines={}, model={"name": "m"}, data={"name": "d", "rows": 9, "digest": "d1"}, seed=0,
        versions={}, seconds=1.0, peak_memory_mb=1.0, command=f"cutaway {method} --model m",
        rows=rows, files=FILES.get(method),
    )  # fmt: skip


@pytest.mark.parametrize("method", ROWS)
def test_every_view_of_a_page_draws_or_says_why_not(runs, page, method: str) -> None:
    shelve(runs, method, "a1", ROWS[method])
    drawn = 0
    for view in (*PAGES[method].views, "Table", "Provenance"):
        app = page(method, view=view)
        assert not app.exception, view
        charts = app.get("plotly_chart")
        drawn += len(charts)
        reasons = [one.label for one in app.expander]
        assert charts or view in ("Table", "Provenance") or "Nothing to draw" in reasons[0], view
        # Each figure has its command and its data; a table has its data in three forms.
        assert len(app.get("download_button")) >= len(charts)
        assert f"cutaway {method} --model m" in texts(app) or not charts
    assert drawn > 1


@pytest.mark.parametrize("method", ROWS)
def test_two_runs_stand_together_or_side_by_side(runs, page, method: str) -> None:
    for address in ("a1", "b2"):
        shelve(runs, method, address, ROWS[method])
    chosen = {f"{method}-runs": ["a1", "b2"]}
    together, beside = (page(method, beside=way, **chosen) for way in (False, True))
    assert not together.exception and not beside.exception
    drawn = len(beside.get("plotly_chart"))
    if not PAGES[method].side_by_side:
        assert drawn == 2 * len(together.get("plotly_chart")) > 0
        return
    assert drawn > 0 and any("side by side" in text.value for text in together.markdown)
    assert len(page(method, **chosen).get("plotly_chart")) == drawn, "so they begin apart"


@pytest.mark.parametrize("method", ROWS)
def test_every_page_can_be_narrowed(runs, page, method: str) -> None:
    shelve(runs, method, "a1", ROWS[method])
    app = page(method)
    boxes = [box for box in app.multiselect if box.key != f"{method}-runs"]
    assert [box.label.lower() for box in boxes] == list(PAGES[method].filters)
    wanted = next(box for box in boxes if box.options)
    narrowed = wanted.set_value([wanted.options[0]]).run()
    assert not narrowed.exception


@pytest.mark.parametrize("method", ROWS)
def test_every_figure_of_a_page_gives_its_data(runs, method: str) -> None:
    shelve(runs, method, "a1", ROWS[method])
    (record,) = results(runs)
    drawn = figures(record.rows, record)
    assert drawn
    for name, figure in drawn.items():
        assert len(figure_csv(figure).splitlines()) > 1, name
