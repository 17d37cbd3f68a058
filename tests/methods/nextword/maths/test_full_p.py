"""Classifiers on the full p, which is never stored, equal those on the dense matrix."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from cutaway.core.errors import BadSpec
from cutaway.methods.nextword.maths.classify import ClassifierSettings
from cutaway.methods.nextword.maths.full_p import (
    P_SOLVERS,
    choose_p_solver,
    classifier_logits,
    distribution_stats,
    fit_p,
    gram_matrix,
    probability_std,
)
from cutaway.methods.nextword.maths.readout import next_token_probs
from tests.methods.nextword.maths.heads import E, features, labels, output_head

TIGHT = {"tol": 1e-8, "max_iter": 4000}


def objective(z: np.ndarray, aim: np.ndarray, c: float, weights: torch.Tensor) -> float:
    return float(c * (np.logaddexp(0, z) - aim * z).sum() + 0.5 * weights.square().sum())


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("solver", P_SOLVERS)
def test_a_classifier_on_p_is_the_one_of_the_dense_matrix(solver, classes, f) -> None:
    head, y, rows = output_head(bias=True), labels(f, classes), np.arange(200)
    settings = ClassifierSettings(classes, **TIGHT)
    found = fit_p(f, head, y, [rows], settings, solver=solver)[0]
    stats = distribution_stats(f[:200], head)
    x = ((next_token_probs(f, head) - stats.mean) / stats.scale)[:200].numpy()
    total, theirs = 0.0, 0.0
    for label in range(classes) if classes > 2 else [1]:
        aim = (y[:200] == label).astype(int)
        dense = LogisticRegression(C=found.c, tol=1e-10, max_iter=20_000).fit(x, aim)
        out = label if classes > 2 else 0
        logits = x @ (found.weights[out].numpy() * stats.scale)
        bias = float(found.intercept[out] + found.weights[out] @ stats.mean)
        total += objective(logits + bias, aim, found.c, found.weights[out] * stats.scale)
        theirs += objective(dense.decision_function(x), aim, found.c, torch.tensor(dense.coef_[0]))
    assert total == pytest.approx(theirs, rel=1e-4)
    assert found.converged


def test_both_solvers_agree_and_logits_are_those_of_the_dense_product(f) -> None:
    head, y, trains = output_head(), labels(f, 2), [np.arange(150), np.arange(60, 210)]
    settings = ClassifierSettings(2, **TIGHT)
    one, other = (fit_p(f, head, y, trains, settings, solver=s) for s in ("gram", "stream"))
    assert [a.c for a in one] == [b.c for b in other]
    torch.testing.assert_close(
        classifier_logits(one, f, head), classifier_logits(other, f, head), rtol=1e-4, atol=1e-4
    )
    for i, fit in enumerate(one):
        dense = next_token_probs(f, head) @ fit.weights.T + fit.intercept
        torch.testing.assert_close(classifier_logits(one, f, head)[:, i], dense)


def test_rows_that_are_in_no_training_split_do_not_matter(f) -> None:
    head, y, rows = output_head(), labels(f, 2), np.arange(120)
    other = f.clone()
    other[120:] += 5.0
    settings = ClassifierSettings(2, **TIGHT)
    for solver in P_SOLVERS:
        first, second = (fit_p(x, head, y, [rows], settings, solver=solver)[0] for x in (f, other))
        assert torch.equal(first.weights, second.weights)


def test_the_solver_depends_on_rows_and_tokens() -> None:
    assert choose_p_solver(6920, 49152) == "gram"
    assert choose_p_solver(120_000, 50257) == "stream"
    assert choose_p_solver(500, 300) == "stream"


def test_an_unknown_solver_is_refused() -> None:
    f, rows = features(4), np.arange(4)
    with pytest.raises(BadSpec, match="solver must be auto, gram or stream, got 'x'"):
        fit_p(f, output_head(), rows, [rows], ClassifierSettings(2), solver="x")


def test_scaled_p_has_the_total_variance_of_standardised_features(f) -> None:
    head = output_head(bias=True)
    stats, p = distribution_stats(f, head), next_token_probs(f, head)
    torch.testing.assert_close(stats.mean, p.mean(0))
    scaled = (p - stats.mean) / stats.scale
    assert float(scaled.square().sum() / len(f)) == pytest.approx(E)


def test_the_gram_matrix_is_that_of_the_centred_scaled_rows(f) -> None:
    head, counts = output_head(), []
    stats = distribution_stats(f, head)
    x = (next_token_probs(f, head) - stats.mean) / stats.scale
    torch.testing.assert_close(gram_matrix(f, head, stats, done=counts.append), x @ x.T)
    assert sum(counts) == len(f)


def test_the_standard_deviation_of_each_probability_is_the_dense_one(f) -> None:
    head = output_head(bias=True)
    expected = next_token_probs(f, head).std(0, correction=0)
    torch.testing.assert_close(probability_std(f, head), expected)


def test_the_streaming_solver_reports_the_rows_of_every_pass(f) -> None:
    counts: list[int] = []
    rows, settings = np.arange(100), ClassifierSettings(2, max_iter=3)
    fit_p(f, output_head(), labels(f, 2), [rows], settings, solver="stream", done=counts.append)
    assert sum(counts) % 100 == 0 and sum(counts) > 100
