"""Fitted classifiers and the metrics of their outputs."""

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

from cutaway.measure.splits import Split
from cutaway.methods.probe.maths.fitted import (
    FitSettings,
    FittedProbe,
    ProbeOutputs,
    linear_probe,
    split_masks,
    squeeze_outputs,
)


@pytest.mark.parametrize(
    ("task", "classes", "outputs"),
    [("binary", 2, 1), ("multiclass", 3, 3), ("multilabel", 4, 4), ("regression", 1, 1)],
)
def test_the_task_decides_how_many_scores_a_row_has(task, classes, outputs):
    settings = FitSettings(task, classes)
    assert settings.outputs == outputs
    squeezed = squeeze_outputs(torch.zeros(5, outputs), settings)
    assert squeezed.ndim == (1 if settings.single else 2)


def test_a_linear_probe_is_a_matrix_product_with_probabilities():
    settings = FitSettings("multiclass", 3)
    weights, bias = torch.randn(3, 4), torch.randn(3)
    probe, x = linear_probe(weights, bias, settings, "logit", {"c": 1.0}), torch.randn(6, 4)
    expected = (x @ weights.T + bias).double()
    assert torch.allclose(probe.scores(x), expected, atol=1e-5)
    assert torch.allclose(probe.probabilities(x, expected), expected.softmax(1))
    assert probe.parameters == 15


def test_only_logits_and_probabilities_have_probabilities():
    scores = torch.tensor([0.2, 0.9])

    def probe(link, **options):
        return FittedProbe(lambda x: x, link, 1, **options)

    assert torch.equal(probe("probability").probabilities(None, scores), scores)
    assert torch.allclose(probe("logit").probabilities(None, scores), scores.sigmoid())
    assert probe("margin").probabilities(None, scores) is None
    own = probe("margin", predict_proba=lambda x: torch.ones(2))
    assert own.probabilities(None, scores).tolist() == [1.0, 1.0]
    several = probe("logit", exclusive=False).probabilities(None, torch.zeros(2, 3))
    assert torch.allclose(several, torch.full((2, 3), 0.5))


def test_masks_mark_the_rows_of_a_part():
    split = Split(0, np.array([0, 3]), np.array([1]), np.array([2]))
    assert split_masks([split], "train", 4).tolist() == [[True, False, False, True]]


def outputs(n: int = 200) -> ProbeOutputs:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, n)
    scores = truth + rng.normal(size=n)
    chance = 1 / (1 + np.exp(-scores))
    decisions = (scores > 0.5).astype(int)
    return ProbeOutputs(
        "binary", truth, decisions, scores, chance, {"f1": (scores > 0).astype(int)}
    )


def test_metrics_of_outputs_are_scikit_learns():
    given = outputs()
    found = given.metrics()
    assert found["accuracy"] == sk.accuracy_score(given.truth, given.decisions)
    assert found["auc"] == pytest.approx(sk.roc_auc_score(given.truth, given.ranks))
    assert found["f1_ref"] == pytest.approx(sk.f1_score(given.truth, given.tuned_decisions["f1"]))
    rows = np.arange(0, 200, 3)
    some = given.metrics(rows)
    assert some["accuracy"] == sk.accuracy_score(given.truth[rows], given.decisions[rows])


def test_without_probabilities_there_is_no_calibration_error():
    given = outputs()
    bare = ProbeOutputs("binary", given.truth, given.decisions, given.ranks)
    assert np.isnan(bare.metrics()["ece"])
    assert 0 < given.metrics()["ece"] < 1


def test_pseudo_values_of_accuracy_average_to_the_accuracy_of_equal_blocks():
    given, blocks = outputs(), np.arange(200) % 20
    found = given.row_scores(blocks, 20, "accuracy").values
    assert np.mean(found) == pytest.approx(given.metrics()["accuracy"])
    every = given.all_row_scores(blocks, 20)
    assert every["accuracy"].values == pytest.approx(found)
    assert set(every) == set(given.metrics())
