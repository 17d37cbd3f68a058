import base64
import re
from dataclasses import replace

import pytest

from cutaway.app import overview
from cutaway.report.overview import overview_table as listing
from cutaway.studies.draw.saved import save_values
from tests.app.conftest import texts
from tests.report.drawing.examples import example
from tests.report.fake_runs import FakeRecord, failed_rows, probe_rows, save_run


def shown(app) -> list[str]:
    """The addresses in the table of runs."""
    return app.dataframe[0].value["address"].to_list()


def test_without_runs_the_page_explains_itself_and_how_to_begin(runs, page) -> None:
    app = page("overview")
    assert not app.exception
    assert "cutaway tour" in texts(app) and "cutaway probe" in texts(app)


def test_the_tour_is_shown_while_there_are_no_own_runs(runs, page) -> None:
    save_run(runs.parent / "tour" / "runs", address="a1")
    app = page("overview")
    assert "the tour" in app.info[0].value and shown(app) == ["a1"]
    save_run(runs, address="b2")
    app = page("overview")
    assert not app.info and shown(app) == ["b2"]


def test_every_word_of_the_search_must_fit(runs, page) -> None:
    save_run(runs, probe_rows(models=("tiny-lm",)), address="a1")
    save_run(runs, probe_rows(models=("large-lm",), sets=("cola",)), address="a2")
    app = page("overview")
    assert sorted(shown(app)) == ["a1", "a2"]
    app.text_input(key="search").set_value("LARGE cola").run()
    assert shown(app) == ["a2"]
    app.text_input(key="search").set_value("large sentiment").run()
    assert not app.exception and "No run matches" in texts(app)
    app.text_input(key="search").set_value("(").run()
    assert not app.exception


def test_filters_keep_only_what_is_chosen(runs, page) -> None:
    save_run(runs, probe_rows(models=("tiny-lm",)), address="a1")
    save_run(runs, probe_rows(models=("large-lm",)), address="a2")
    app = page("overview")
    app.multiselect(key="only-model").set_value(["tiny-lm"]).run()
    assert shown(app) == ["a1"] and "1 of 2 runs" in texts(app)


def test_of_many_runs_the_newest_are_listed_and_all_are_searched(runs, page, monkeypatch) -> None:
    monkeypatch.setattr(overview, "MAX_LINES", 2)
    save_run(runs, probe_rows(models=("old-lm",)), address="a0")
    for i in (1, 2, 3):
        save_run(runs, address=f"a{i}")
    app = page("overview")
    assert shown(app) == ["a3", "a2"] and "4 of 4 runs; the newest 2 are listed" in texts(app)
    app.text_input(key="search").set_value("old-lm").run()
    assert shown(app) == ["a0"] and "newest" not in texts(app)


def test_broken_runs_are_listed_with_their_reason_and_the_others_work(runs, page) -> None:
    save_run(runs, address="a1")
    broken = save_run(runs, address="a2")
    (broken.path / "result.json").write_text("{")
    app = page("overview")
    assert not app.exception and shown(app) == ["a1"]
    listed = app.dataframe[1].value
    assert listed["folder"].to_list() == ["a2"] and "damaged" in listed["reason"][0]


def test_a_runs_folder_that_is_a_file_is_said_in_place(runs, page) -> None:
    runs.write_text("not a folder")
    app = page("overview")
    assert not app.exception and "cutaway tour" in texts(app)


@pytest.mark.parametrize("summary", [{}, {"imported": True}, {"best": None, "verdict": "one"}])
def test_a_run_without_a_best_cell_is_a_line_like_any_other(summary) -> None:
    rows = failed_rows()
    line = overview.display_table(listing([FakeRecord(rows, summary=summary)])).row(0, named=True)
    assert line["score"] == "–" and line["time"] == "12 s"


def test_text_from_data_is_never_markdown(runs, page) -> None:
    nasty = "![x](http://evil.example/x.png) <b>b</b> :red[r] $x$"
    save_run(runs, probe_rows(models=(nasty,)), summary={"verdict": [nasty]})
    app = page("probe")
    assert not app.exception
    said = app.info[0].value
    assert not re.search(r"(?<!\\)[\[\]()<>$:!]", said.replace("**", ""))


def test_the_page_begins_with_the_drawing_of_the_chosen_model(runs, page) -> None:
    save_run(runs, address="a1")
    app = page("overview")
    assert "cutaway draw MODEL" in texts(app)
    for name in ("one", "two"):
        save_values(replace(example(6), model=name), runs, name)
    app = page("overview")
    assert not app.exception
    assert app.selectbox[0].options == ["two", "one"]
    app.selectbox[0].set_value(1).run()
    assert not app.exception and shown(app) == ["a1"]


@pytest.mark.parametrize("theme", ["light", "dark", None])
def test_the_drawing_is_an_image_with_a_text_alternative(theme) -> None:
    drawing = replace(example(6), model='<b>"x"')
    image = overview.drawing_image(drawing, theme)
    assert 'alt="' in image and "<b>" not in image
    source = re.search(r"base64,([^\"]+)", image)[1]
    svg = base64.b64decode(source).decode()
    assert svg.startswith("<svg") and "prefers-color-scheme" not in svg
