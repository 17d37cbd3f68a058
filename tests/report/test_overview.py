import pytest

from cutaway.report.overview import OVERVIEW_SCHEMA, headline_in_summary, local_time, overview_table
from tests.report.fake_runs import FakeRecord, probe_rows

ROWS = probe_rows(layers=("1",), baselines=False)
BEST = {
    "model": "m",
    "data": "d",
    "layers": "7",
    "pool": "last",
    "metric": "accuracy",
    "value": 0.8,
}


def record(best=BEST, **fields) -> FakeRecord:
    return FakeRecord(ROWS, summary={"best": best, "verdict": ["One.", "Two."]}, **fields)


def line(**fields) -> dict:
    return overview_table([record(**fields)]).row(0, named=True)


def test_a_run_is_one_line_with_its_best_cell() -> None:
    found = line()
    assert list(found) == list(OVERVIEW_SCHEMA)
    assert (found["score"], found["where"], found["verdict"]) == (
        0.8,
        "layer 7 · last",
        "One. Two.",
    )
    assert found["origin"] == "run"


@pytest.mark.parametrize(("metric", "baseline"), [("accuracy", 0.6), ("mse", 0.5)])
def test_the_best_baseline_is_the_lowest_if_lower_is_better(metric: str, baseline: float) -> None:
    scores = {"m on d": {"majority": 0.5, "bow": 0.6, "note": "text"}, "m on e": {"bow": 0.9}}
    assert line(best={**BEST, "metric": metric}, baselines=scores)["baseline"] == baseline


@pytest.mark.parametrize("best", [None, [], "0.8", 3])
def test_a_summary_without_a_best_cell_gives_an_empty_score(best) -> None:
    assert headline_in_summary(record(best)) == {}
    assert line(best=best)["score"] is None


def test_the_first_best_cell_of_a_grid_counts() -> None:
    assert line(best=[BEST, {**BEST, "value": 0.9}])["score"] == 0.8


def test_no_runs_give_an_empty_table_with_all_columns() -> None:
    assert overview_table([]).columns == list(OVERVIEW_SCHEMA)


def test_a_time_that_can_not_be_parsed_stays_as_it_is() -> None:
    assert local_time("yesterday") == "yesterday"
    assert len(local_time("2026-01-02T03:04:05+00:00")) == len("2026-01-02 03:04")
