"""The pieces of the probe grid: what each kind measures."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from cutaway.core.textset import TextSet
from cutaway.methods.probe import pieces
from cutaway.methods.probe.details import ConfusionMatrix, LossCurves, Projection, RocCurve
from cutaway.methods.probe.maths.layer_mix import parse_layers
from cutaway.methods.probe.pieces import PIECE_KINDS, ProbePiece, measure_piece
from cutaway.methods.probe.rows import ProbeCell
from tests.methods.probe.test_inputs import probe_inputs


@pytest.fixture(scope="module")
def inputs(lm):
    return probe_inputs(lm)


def piece(kind: str, classifier: str = "ridge") -> ProbePiece:
    (mix,) = parse_layers("2", 3)
    made = ProbeCell("m", "set", "2", "last", classifier, kind)
    return ProbePiece(kind, made, None if kind == "baseline" else mix)


def values(result, metric: str) -> list[float]:
    return [row["value"] for row in result.rows if row["metric"] == metric]


@pytest.mark.parametrize("kind", ["probe", "twin", "control"])
def test_a_cell_has_one_value_per_split_and_metric(inputs, kind: str) -> None:
    result = measure_piece(piece(kind), inputs)
    metrics = {row["metric"] for row in result.rows}
    assert {"accuracy", "parameters"} <= metrics
    assert len(result.rows) == len(inputs.splits) * len(metrics)
    assert {row["kind"] for row in result.rows} == {kind}


def test_the_rows_have_the_sizes_of_their_splits(inputs) -> None:
    for row in measure_piece(piece("probe"), inputs).rows:
        split = inputs.splits[row["repeat"]]
        assert row["n_train"] == len(split.train) and row["n_test"] == len(split.test)


def test_the_twin_and_the_control_are_not_the_cell_itself(inputs) -> None:
    scores = {
        kind: [row["value"] for row in measure_piece(piece(kind), inputs).rows]
        for kind in ("probe", "twin", "control")
    }
    assert scores["probe"] != scores["twin"]
    assert scores["probe"] != scores["control"]


def test_the_majority_baseline_scores_the_share_of_the_most_frequent_class(inputs) -> None:
    result = measure_piece(piece("baseline", "majority"), inputs)
    for split, value in zip(inputs.splits, values(result, "accuracy"), strict=True):
        most = np.bincount(inputs.labels[split.train]).argmax()
        assert value == pytest.approx(np.mean(inputs.labels[split.test] == most))


def test_mdl_is_one_row_per_figure_and_compression_is_their_ratio(inputs) -> None:
    result = measure_piece(piece("mdl", "logistic"), inputs)
    names = ("mdl_bits", "mdl_prior_bits", "mdl_uniform_bits", "mdl_compression")
    bits, prior, uniform, ratio = (values(result, name) for name in names)
    assert len(bits) == len(prior) == len(uniform) == len(ratio) == 1
    # The labels of the training rows: test rows are not part of the code.
    train = len(inputs.splits[0].train)
    assert train < len(inputs.texts) and uniform[0] == pytest.approx(train)
    assert {(row["n_train"], row["n_test"]) for row in result.rows} == {(train, 0)}
    assert ratio[0] == pytest.approx(prior[0] / bits[0])


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
    monkeypatch.setattr(pieces, "ROC_POINTS", 4)
    result = measure_piece(piece("details"), inputs)
    curve = next(d for d in result.details if isinstance(d, RocCurve))
    assert len(curve.false_positive) <= 4
    ends = (curve.false_positive[0], curve.false_positive[-1], curve.true_positive[-1])
    assert ends == (0.0, 1.0, 1.0)
    split = inputs.splits[-1]
    outcome = pieces._fit(piece("details"), inputs, inputs.labels, (split,))[0]
    expected = roc_auc_score(inputs.labels[split.test], outcome.outputs.ranks)
    assert curve.auc == pytest.approx(expected)


@pytest.mark.parametrize(("classifier", "curves"), [("ridge", 0), ("linear", 1)])
def test_only_classifiers_trained_by_gradients_have_loss_curves(inputs, classifier, curves) -> None:
    found = measure_piece(piece("probe", classifier), inputs).details
    assert len(found) == curves
    for detail in found:
        assert isinstance(detail, LossCurves)
        assert len(detail.train) == len(detail.validation)
        assert detail.validation[detail.kept - 1] == min(detail.validation)


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


@pytest.mark.parametrize("kind", sorted(set(PIECE_KINDS) - {"mdl", "details"}))
def test_where_repeats_share_their_test_rows_every_comparable_cell_has_block_values(
    lm,
    kind: str,
) -> None:
    fixed = probe_inputs(lm)
    parts = np.array(["train"] * 24 + ["dev"] * 4 + ["test"] * 12)
    spec = fixed.spec.model_copy(update={"protocol": "fixed"})
    fixed = replace(fixed, spec=spec, texts=replace(fixed.texts, parts=parts))
    name = "bow" if kind == "baseline" else "ridge"
    result = measure_piece(piece(kind, name), fixed)
    (info,) = result.resampling.values()
    mean = np.mean(values(result, "accuracy"))
    assert len(info.blocks) == int(fixed.blocks.max()) + 1
    assert np.mean(info.blocks) == pytest.approx(mean, abs=0.02)
