import pytest

from cutaway.app.pages import PAGES
from cutaway.methods.probe import details
from cutaway.report.figures import figures_of
from tests.app.conftest import texts
from tests.report.fake_runs import failed_rows, probe_details, probe_rows, save_run


def figures(app) -> int:
    return len(app.get("plotly_chart"))


def test_without_probe_runs_the_page_says_where_to_start_one(runs, page) -> None:
    app = page("probe")
    assert not app.exception and "New run" in app.info[0].value


def test_the_newest_run_is_shown_first_with_its_verdict_and_figures(runs, page) -> None:
    save_run(runs, address="a1")
    save_run(runs, probe_rows(pools=("last", "mean")), address="a2")
    app = page("probe")
    assert not app.exception
    assert app.multiselect(key="probe-runs").value == ["a2"]
    assert "reads it best" in app.info[0].value
    assert figures(app) == 2


@pytest.mark.parametrize(
    ("view", "drawn"), [("Layers", 1), ("Comparison", 1), ("Inside the chosen probe", 5)]
)
def test_each_view_draws_its_figures(runs, page, view: str, drawn: int) -> None:
    save_run(runs, entries=probe_details(points=30))
    app = page("probe", view=view)
    assert not app.exception and figures(app) == drawn


def test_every_figure_offers_its_command_and_says_how_to_read_it(runs, page) -> None:
    record = save_run(runs)
    app = page("probe")
    assert record.command in app.code[0].value
    assert f"cutaway report {record.address}" in app.code[0].value
    assert any("Each point is a probe" in c.value.replace("\\", "") for c in app.caption)
    assert app.get("download_button")


def test_the_table_lists_cells_and_failures(runs, page) -> None:
    save_run(runs, failed_rows())
    app = page("probe", view="Table")
    cells, failed = (one.value for one in app.dataframe)
    assert {"mean", "low", "high"} <= set(cells.columns)
    assert "singular" in failed["reason"][0]
    assert len(app.get("download_button")) == 3


def test_provenance_shows_digests_and_the_command(runs, page) -> None:
    record = save_run(runs)
    said = texts(page("probe", view="Provenance"))
    assert "digest a0a0" in said and record.command in said


def test_filters_narrow_figures_and_table(runs, page) -> None:
    save_run(runs, probe_rows(classifiers=("logistic", "lda")))
    app = page("probe", view="Table")
    app.multiselect(key="keep-classifier").set_value(["lda"]).run()
    kept = app.dataframe[0].value
    assert set(kept[kept["kind"] == "probe"]["classifier"]) == {"lda"}
    assert "bow" in set(kept["classifier"]), "baselines stay beside the filtered scores"


def test_filters_that_leave_nothing_are_a_message_not_an_error(runs, page) -> None:
    save_run(runs, probe_rows(models=("tiny-lm",)), address="a1")
    save_run(runs, probe_rows(models=("large-lm",), sets=("cola",)), address="a2")
    app = page("probe", **{"probe-runs": ["a1", "a2"]})
    app.multiselect(key="keep-model").set_value(["tiny-lm"])
    app.multiselect(key="keep-data").set_value(["cola"]).run()
    assert not app.exception and figures(app) == 0


def test_several_runs_stand_in_one_figure_or_side_by_side(runs, page) -> None:
    save_run(runs, probe_rows(models=("tiny-lm",)), address="a1")
    save_run(runs, probe_rows(models=("large-lm",)), address="a2")
    app = page("probe", **{"probe-runs": ["a1", "a2"]})
    assert figures(app) == 1
    app.toggle(key="beside").set_value(True).run()
    assert not app.exception and figures(app) == 2
    assert len(app.subheader) == 2


def test_an_unreadable_run_is_said_in_place_and_the_other_is_drawn(runs, page) -> None:
    save_run(runs, address="a1")
    broken = save_run(runs, address="a2")
    (broken.path / "rows.parquet").write_bytes(b"junk")
    app = page("probe", **{"probe-runs": ["a1", "a2"]})
    assert not app.exception
    assert "checksum" in app.warning[0].value and figures(app) == 1


def test_damaged_details_are_said_in_place(runs, page) -> None:
    record = save_run(runs, entries=probe_details(points=10))
    (record.path / details.DETAILS_FILE).write_text("[{")
    app = page("probe", view="Inside the chosen probe")
    assert not app.exception and "can't be read" in app.warning[0].value.replace("\\", "")


@pytest.mark.parametrize("address", ["../../etc", "a1/../a1", "", "nope", "a1\x00"])
def test_only_addresses_of_listed_runs_are_opened(runs, page, address: str) -> None:
    save_run(runs, address="a1")
    app = page("probe", **{"probe-runs": [address]})
    assert not app.exception and app.multiselect(key="probe-runs").value == ["a1"]


def test_imported_logs_stand_beside_own_runs(runs, page) -> None:
    save_run(runs, address="a1")
    logs = probe_rows(models=("gpt2",), baselines=False).with_columns(low=None, high=None)
    save_run(runs, logs, address="b1", summary={"imported": True})
    app = page("probe", **{"probe-runs": ["a1", "b1"]})
    assert not app.exception and figures(app) == 1


@pytest.mark.parametrize("method", PAGES)
def test_every_page_shows_every_figure_of_its_method_once(method: str) -> None:
    shown = [name for names in PAGES[method].views.values() for name in names]
    assert sorted(shown) == sorted(figures_of(method))
