"""The pieces of the probe grid: what each kind measures."""

from dataclasses import replace

import numpy as np
import pytest

from cutaway.methods.probe import pieces
from cutaway.methods.probe.details import LossCurves
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


def test_a_twin_can_be_measured_on_some_repeats_only(inputs) -> None:
    whole = measure_piece(piece("twin"), inputs)
    last = inputs.splits[-1].repeat
    part = measure_piece(replace(piece("twin"), repeats=(last,)), inputs)
    assert {row["repeat"] for row in part.rows} == {last}
    assert values(part, "accuracy") == values(whole, "accuracy")[-1:]


def test_cells_have_the_validation_scores_they_are_chosen_by_and_the_control_its_words(
    inputs,
) -> None:
    probe, control = (measure_piece(piece(kind), inputs) for kind in ("probe", "control"))
    outcomes = pieces._fit(piece("probe"), inputs, inputs.labels, inputs.splits)
    for split, outcome, value in zip(
        inputs.splits, outcomes, values(probe, "accuracy_val"), strict=True
    ):
        assert np.mean(outcome.validation.decisions == inputs.labels[split.val]) == value
    assert len(values(probe, "auc_val")) == len(inputs.splits)
    assert not values(control, "accuracy_val")
    assert all(0 <= share <= 1 for share in values(control, "control_words_seen"))
    assert {row["low"] for row in probe.rows if row["metric"].endswith("_val")} == {None}


@pytest.mark.parametrize(("classifier", "curves"), [("ridge", 0), ("linear", 1)])
def test_only_classifiers_trained_by_gradients_have_loss_curves(inputs, classifier, curves) -> None:
    found = measure_piece(piece("probe", classifier), inputs).details
    assert len(found) == curves
    for detail in found:
        assert isinstance(detail, LossCurves)
        assert len(detail.train) == len(detail.validation)
        assert detail.validation[detail.kept - 1] == min(detail.validation)


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
    assert {len(one) for one in info.blocks} == {int(fixed.blocks.max()) + 1}
    assert np.mean(info.blocks) == pytest.approx(mean, abs=0.02)
