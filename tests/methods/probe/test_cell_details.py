"""What the figures of one probe show."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from cutaway.core.textset import TextSet
from cutaway.methods.probe import cell_details, pieces
from cutaway.methods.probe.details import ConfusionMatrix, Projection, RocCurve
from cutaway.methods.probe.pieces import measure_piece
from tests.methods.probe.test_inputs import probe_inputs
from tests.methods.probe.test_pieces import piece, values


@pytest.fixture(scope="module")
def inputs(lm):
    return probe_inputs(lm)


def test_the_details_describe_the_test_rows_of_the_last_split(inputs) -> None:
    result = measure_piece(piece("details"), inputs)
    assert result.rows == []
    by_kind = {type(detail): detail for detail in result.details}
    split = inputs.splits[-1]
    truth = np.bincount(inputs.labels[split.test], minlength=2)
    assert [sum(row) for row in by_kind[ConfusionMatrix].counts] == truth.tolist()
    correct = sum(by_kind[ConfusionMatrix].counts[k][k] for k in range(2))
    probe = measure_piece(piece("probe"), inputs)
    assert correct / len(split.test) == pytest.approx(values(probe, "accuracy")[-1])
    assert by_kind[RocCurve].auc == pytest.approx(values(probe, "auc")[-1])
    assert len(by_kind[Projection].x) == len(split.test)


def test_a_roc_curve_with_many_points_keeps_its_ends_and_its_area(inputs, monkeypatch) -> None:
    monkeypatch.setattr(cell_details, "ROC_POINTS", 4)
    result = measure_piece(piece("details"), inputs)
    curve = next(d for d in result.details if isinstance(d, RocCurve))
    assert len(curve.false_positive) <= 4
    ends = (curve.false_positive[0], curve.false_positive[-1], curve.true_positive[-1])
    assert ends == (0.0, 1.0, 1.0)
    split = inputs.splits[-1]
    outcome = pieces._fit(piece("details"), inputs, inputs.labels, (split,))[0]
    expected = roc_auc_score(inputs.labels[split.test], outcome.outputs.ranks)
    assert curve.auc == pytest.approx(expected)


@pytest.mark.parametrize(
    ("task", "kinds"),
    [
        ("multiclass", ["confusion", "roc", "roc", "roc", "projection", "projection"]),
        ("regression", ["projection"]),
        ("multilabel", []),
    ],
)
def test_each_task_has_the_details_that_make_sense_for_it(lm, task: str, kinds) -> None:
    base = probe_inputs(lm)
    number = np.arange(40) % 3
    labels = {
        "multiclass": number,
        "regression": number / 2.0,
        "multilabel": np.stack([number > 0, number > 1], 1).astype(int),
    }[task]
    classes = {"multiclass": ("a", "b", "c"), "regression": (), "multilabel": ("a", "b")}[task]
    texts = TextSet("set", base.texts.texts, labels=labels, task=task, classes=classes)
    details = measure_piece(piece("details"), replace(base, texts=texts)).details
    assert [detail.figure for detail in details] == kinds
