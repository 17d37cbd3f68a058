import polars as pl
import pytest

from cutaway.report import metric_labels


@pytest.mark.parametrize(
    ("metric", "label", "lowest"),
    [
        ("accuracy", "Accuracy", False),
        ("accuracy_train", "Accuracy (train)", False),
        ("ece", "Calibration error (ECE)", True),
        ("mdl_bits", "Code length (bits)", True),
        ("some_other", "Some other", False),
    ],
)
def test_metrics_are_named_and_ranked_by_their_row(metric, label, lowest) -> None:
    assert metric_labels.metric_axis_label(metric) == label
    assert metric_labels.lower_is_better(metric) == lowest


def test_measured_metrics_come_best_known_first_and_the_others_by_name() -> None:
    rows = pl.DataFrame({"metric": ["zeta", "auc", "alpha", "accuracy", None, "auc"]})
    assert metric_labels.measured_metrics(rows) == ["accuracy", "auc", "alpha", "zeta"]
    assert metric_labels.measured_metrics(pl.DataFrame()) == []
