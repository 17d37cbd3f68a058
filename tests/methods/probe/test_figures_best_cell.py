"""The figures of the best probe, drawn from the details of its run."""

import polars as pl
import pytest

from cutaway.core.errors import Missing
from cutaway.methods.probe import details
from cutaway.methods.probe import figures_best_cell as figures
from cutaway.report import theme
from tests.report.fake_runs import FakeRecord, probe_details, probe_rows

CELL = {
    "model": "small-lm",
    "data": "gen:sentiment",
    "layers": "7",
    "pool": "last",
    "classifier": "logistic",
}


def record(folder, entries, rows=None) -> FakeRecord:
    (folder / details.DETAILS_FILE).write_bytes(details.dump_details(entries))
    return FakeRecord(probe_rows() if rows is None else rows, path=folder)


def test_the_shares_of_each_true_class_add_up_to_one(tmp_path) -> None:
    run = record(tmp_path, probe_details(classes=("a", "b", "c")))
    matrix = figures.confusion_matrix(run.rows, run).data[0]
    for shares, counts in zip(matrix.z, matrix.text, strict=True):
        assert sum(shares) == pytest.approx(1)
        assert [s * sum(counts) for s in shares] == pytest.approx(list(counts))


def test_a_class_without_test_rows_has_shares_of_zero(tmp_path) -> None:
    entry = details.ConfusionMatrix(**CELL, classes=("a", "b"), counts=((3, 1), (0, 0)))
    run = record(tmp_path, [entry])
    assert list(figures.confusion_matrix(run.rows, run).data[0].z[1]) == [0, 0]


def test_the_best_cell_of_those_with_details_is_shown(tmp_path) -> None:
    run = record(tmp_path, probe_details(layers=("0", "8", "2")))
    values = run.rows.filter(pl.col("kind") == "probe").group_by("layers").agg(
        pl.col("value").mean()
    )  # fmt: skip
    scores = dict(values.rows())
    best = max(("0", "8", "2"), key=scores.get)
    for draw in (figures.confusion_matrix, figures.score_histogram, figures.projection):
        assert f"layer {best}," in theme.caption(draw(run.rows, run))


def test_for_errors_the_lowest_cell_is_the_best(tmp_path) -> None:
    rows = probe_rows().with_columns(metric=pl.lit("mae"))
    run = record(tmp_path, probe_details(layers=("0", "8")), rows)
    assert "layer 0," in theme.caption(figures.projection(rows, run))


def test_two_classes_have_a_roc_curve_per_cell_and_several_one_per_class(tmp_path) -> None:
    run = record(tmp_path, probe_details(layers=("7", "8")))
    names = [t.name.split(",")[0] for t in figures.roc_curves(run.rows, run).data]
    assert names[0] == "chance" and sorted(names[1:]) == ["layer 7", "layer 8"]
    curve = {"false_positive": (0.0, 1.0), "true_positive": (0.0, 1.0), "auc": 0.5}
    run = record(tmp_path, [details.RocCurve(**CELL, label=c, **curve) for c in "abc"])
    figure = figures.roc_curves(run.rows, run)
    assert [t.name[0] for t in figure.data[1:]] == ["a", "b", "c"]
    assert figure.layout.title.text == "ROC curves by class"


def test_roc_curves_beyond_the_sixth_are_counted_in_the_caption(tmp_path) -> None:
    run = record(tmp_path, probe_details(layers=tuple(map(str, range(8)))))
    figure = figures.roc_curves(run.rows, run)
    assert len(figure.data) == 1 + figures.MAX_LINES
    assert "2 more not shown" in theme.caption(figure)


def test_the_histogram_has_every_test_row_once_and_the_threshold(tmp_path) -> None:
    run = record(tmp_path, probe_details(points=200))
    figure = figures.score_histogram(run.rows, run)
    assert [bar.name for bar in figure.data] == ["negative", "positive"]
    assert sum(sum(bar.y) for bar in figure.data) == 200
    assert figure.layout.shapes[0].x0 == 0.1


def test_a_threshold_that_decides_nothing_is_not_drawn(tmp_path) -> None:
    edges, counts = (0.0, 1.0), {"a": (1,), "b": (2,)}
    entry = details.ScoreHistogram(**CELL, edges=edges, counts=counts, threshold=float("-inf"))
    run = record(tmp_path, [entry])
    assert not figures.score_histogram(run.rows, run).layout.shapes


def test_states_of_a_regression_are_coloured_by_their_target(tmp_path) -> None:
    targets = (0.5, 1.5, 2.5)
    entry = details.Projection(**CELL, x=(0.0, 1.0, 2.0), y=(0.0, 0.0, 1.0), labels=targets)
    run = record(tmp_path, [entry])
    (dots,) = figures.projection(run.rows, run).data
    assert tuple(dots.marker.color) == targets


def test_the_ring_is_at_the_validation_loss_of_the_epoch_that_was_kept(tmp_path) -> None:
    entry = details.LossCurves(**CELL, train=(3.0, 2.0, 1.0), validation=(3.0, 2.5, 2.7), kept=2)
    run = record(tmp_path, [entry])
    train, validation, ring = figures.loss_curves(run.rows, run).data
    assert list(train.x) == [1, 2, 3] and list(validation.y) == [3.0, 2.5, 2.7]
    assert (ring.x[0], ring.y[0]) == (2, 2.5)


def test_without_validation_rows_there_is_only_the_training_loss(tmp_path) -> None:
    run = record(tmp_path, [details.LossCurves(**CELL, train=(3.0, 2.0), kept=2)])
    assert len(figures.loss_curves(run.rows, run).data) == 1


def test_details_of_cells_that_were_filtered_out_are_missing(tmp_path) -> None:
    run = record(tmp_path, probe_details(layers=("7",)))
    with pytest.raises(Missing, match="No roc data"):
        figures.roc_curves(run.rows.filter(pl.col("layers") != "7"), run)
