import pytest

from cutaway.core.errors import Missing
from cutaway.report.compare import compare_runs
from cutaway.report.figures import try_figures
from cutaway.report.records import CombinedRuns, parameter_counts
from tests.report.fake_runs import FakeRecord, probe_rows, summary_of


def fake(address: str, model: str = "small-lm", **more) -> FakeRecord:
    rows = probe_rows(models=(model,), seed=int(address[-1]))
    told = {"name": model, "parameters": 10**8}
    return FakeRecord(
        rows,
        address=address,
        model=told,
        summary=summary_of(rows),
        baselines={f"{model} on gen:sentiment": {"tfidf": 0.625, "bow": 0.5}},
        **more,
    )


def test_each_run_is_a_dot_with_its_interval_and_baseline() -> None:
    figure = compare_runs([fake("aaaa1"), fake("bbbb2", "large-lm")])
    baseline, best = figure.data
    assert len(best.x) == len(baseline.x) == 2
    assert list(best.y) == ["large-lm on gen:sentiment", "small-lm on gen:sentiment"]
    assert all(v > 0 for v in best.error_x.array)
    assert list(baseline.x) == [0.625, 0.625]


def test_runs_of_the_same_model_and_data_are_told_apart_by_address() -> None:
    names = set(compare_runs([fake("aaaa1"), fake("bbbb2")]).data[1].y)
    assert names == {"small-lm on gen:sentiment (aaaa)", "small-lm on gen:sentiment (bbbb)"}


def test_runs_without_a_best_score_are_refused_or_left_out() -> None:
    none = FakeRecord(probe_rows(layers=("1",)), summary={})
    assert len(compare_runs([none, fake("aaaa1")]).data[1].x) == 1
    with pytest.raises(Missing):
        compare_runs([none])


def test_runs_that_overlap_keep_their_cells_apart_when_drawn_together() -> None:
    one, two = fake("aaaa1"), fake("bbbb2")
    both = CombinedRuns((one, two))
    assert set(both.rows["model"]) == {"small-lm [aaaa]", "small-lm [bbbb]"}
    assert set(parameter_counts(both)) == {"small-lm [aaaa]", "small-lm [bbbb]"}
    drawn = dict(try_figures(both.rows, both))["layers"]
    names = [t.name for t in drawn.data if t.mode == "lines+markers"]
    assert names == ["small-lm [aaaa]", "small-lm [bbbb]"]


def test_runs_that_do_not_overlap_keep_their_names() -> None:
    both = CombinedRuns((fake("aaaa1"), fake("bbbb2", "large-lm")))
    assert set(both.rows["model"]) == {"small-lm", "large-lm"}
