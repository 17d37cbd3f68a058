"""Classifiers without gradient training, against independent calculations."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import StandardScaler

from cutaway.core.errors import BadData
from cutaway.measure.splits import Split
from cutaway.methods.probe.maths.closed_form import (
    ALPHA_GRID,
    lda,
    logistic,
    naive_bayes,
    nearest_centroid,
    pca,
    qda,
    regression_targets,
    ridge,
)
from cutaway.methods.probe.maths.fitted import FitSettings, binary_relevance_splits
from cutaway.solvers.rows import RowBlocks

BINARY, THREE = FitSettings("binary", 2), FitSettings("multiclass", 3)
MANY_SPLITS = {
    "logistic": logistic,
    "ridge": ridge,
    "lda": lda(None),
    "nb": naive_bayes,
    "centroid": nearest_centroid,
}


def data(classes: int = 2, n: int = 120, d: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(classes)
    y = rng.integers(classes, size=n)
    x = rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + y[:, None]
    return torch.tensor(x), torch.tensor(y)


def splits(n: int = 120) -> list[Split]:
    orders = [np.random.default_rng(seed).permutation(n) for seed in range(3)]
    return [Split(i, o[:70], o[70:90], o[90:]) for i, o in enumerate(orders)]


@pytest.mark.parametrize("name", MANY_SPLITS)
@pytest.mark.parametrize("settings", [BINARY, THREE], ids=["binary", "multiclass"])
def test_a_split_fitted_with_others_equals_the_split_fitted_alone(name, settings) -> None:
    x, y = data(settings.classes)
    together = MANY_SPLITS[name](x, y, splits(), settings)
    for split, fit in zip(splits(), together, strict=True):
        alone = MANY_SPLITS[name](x, y, [split], settings)[0]
        # Logistic regression is iterative: it stops at a tolerance.
        atol = 1e-2 if name == "logistic" else 1e-6
        np.testing.assert_allclose(fit.scores(x), alone.scores(x), atol=atol)


@pytest.mark.parametrize("name", MANY_SPLITS)
def test_blocks_of_rows_give_the_scores_of_the_matrix(name) -> None:
    x, y = data()
    blocks = RowBlocks(lambda: iter(x.split(13)), *x.shape)
    ours, theirs = (MANY_SPLITS[name](given, y, splits(), BINARY)[0] for given in (blocks, x))
    np.testing.assert_allclose(ours.scores(x), theirs.scores(x), atol=1e-2)
    assert ours.parameters == theirs.parameters


@pytest.mark.parametrize("name", MANY_SPLITS)
def test_rows_outside_training_and_validation_change_nothing(name) -> None:
    x, y = data()
    split = splits()[0]
    other = y.clone()
    other[split.test] = 1 - other[split.test]
    one, two = (MANY_SPLITS[name](x, given, [split], BINARY)[0] for given in (y, other))
    np.testing.assert_allclose(one.scores(x), two.scores(x), atol=1e-12)


def test_lda_and_naive_bayes_have_scikit_learns_probabilities() -> None:
    x, y = data(3)
    split = splits()[0]
    for ours, theirs in ((lda(None), LinearDiscriminantAnalysis()), (naive_bayes, GaussianNB())):
        fit = ours(x, y, [split], THREE)[0]
        theirs.fit(x[split.train].numpy(), y[split.train].numpy())
        mine = fit.scores(x).double().softmax(1)
        np.testing.assert_allclose(mine, theirs.predict_proba(x.numpy()), atol=1e-6)


def test_ridge_has_the_weights_of_the_alpha_with_the_lowest_leave_one_out_error() -> None:
    x, y = data()
    split = splits()[0]
    fit = ridge(x, y, [split], BINARY)[0]
    scaler = StandardScaler().fit(x[split.train].numpy())
    train, target = scaler.transform(x[split.train].numpy()), 2.0 * y[split.train].numpy() - 1
    errors = {}
    for alpha in ALPHA_GRID:
        others = [np.arange(len(train)) != i for i in range(len(train))]
        gaps = [
            target[i] - Ridge(alpha=alpha).fit(train[k], target[k]).predict(train[[i]])[0]
            for i, k in enumerate(others)
        ]
        errors[alpha] = np.mean(np.square(gaps))
    best = min(errors, key=errors.get)
    assert fit.notes["alpha"] == pytest.approx(best)
    assert fit.notes["loo_mse"] == pytest.approx(errors[best], rel=1e-6)
    theirs = Ridge(alpha=best).fit(train, target).predict(scaler.transform(x.numpy()))
    np.testing.assert_allclose(fit.scores(x).numpy(), theirs, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "labels", "expected"),
    [
        (FitSettings("regression", 1), [0.5, 2.0], [[0.5], [2.0]]),
        (BINARY, [0, 1], [[-1], [1]]),
        (THREE, [2, 0], [[-1, -1, 1], [1, -1, -1]]),
        (FitSettings("multilabel", 2), [[0, 1], [1, 1]], [[-1, 1], [1, 1]]),
    ],
)
def test_classes_become_targets_of_minus_one_and_one(settings, labels, expected) -> None:
    assert regression_targets(torch.tensor(labels), settings).tolist() == expected


def test_multilabel_is_one_binary_classifier_per_label() -> None:
    x, y = data()
    both = torch.stack([y, 1 - y], 1)
    wide = binary_relevance_splits(naive_bayes)(x, both, splits(), FitSettings("multilabel", 2))
    single = naive_bayes(x, y, splits(), BINARY)
    for many, one in zip(wide, single, strict=True):
        np.testing.assert_allclose(many.scores(x)[:, 0], one.scores(x))
        np.testing.assert_allclose(many.scores(x)[:, 1], -one.scores(x), atol=1e-9)
        assert many.parameters == 2 * one.parameters


def test_the_pca_probe_reads_the_first_principal_component_towards_class_1() -> None:
    x, y = data()
    fit = pca(x, y, x[:0], y[:0], BINARY)
    expected = PCA(1).fit_transform(x.numpy())[:, 0]
    scores = fit.scores(x).numpy()
    np.testing.assert_allclose(np.abs(scores), np.abs(expected), atol=1e-9)
    assert scores[y == 1].mean() > scores[y == 0].mean()
    share = PCA(1).fit(x.numpy()).explained_variance_ratio_[0]
    assert fit.notes["variance_share"] == pytest.approx(share)


@pytest.mark.parametrize("d", [3, 50])
def test_pca_finds_the_same_axis_with_more_columns_than_rows(d: int) -> None:
    x = torch.tensor(np.random.default_rng(0).standard_normal((20, d)))
    y = torch.arange(20) % 2
    scores = pca(x, y, x[:0], y[:0], BINARY).scores(x).numpy()
    expected = PCA(1, svd_solver="full").fit_transform(x.numpy())[:, 0]
    np.testing.assert_allclose(np.abs(scores), np.abs(expected), atol=1e-8)


def test_qda_separates_classes_that_differ_only_in_their_variance() -> None:
    rng = np.random.default_rng(0)
    y = torch.arange(400) % 2
    x = torch.tensor(rng.standard_normal((400, 3))) * torch.where(y == 1, 6.0, 0.5)[:, None]
    scores = qda(x, y, x[:0], y[:0], BINARY).scores(x)
    assert ((scores > 0) == (y == 1)).double().mean() > 0.95
    flat = lda(None)(x, y, [Split(0, *[np.arange(400)] * 3)], BINARY)[0].scores(x)
    assert ((flat > 0) == (y == 1)).double().mean() < 0.8


def test_qda_refuses_a_class_with_one_row() -> None:
    x, y = data(n=10)
    y[:] = 0
    y[0] = 1
    with pytest.raises(BadData, match="class 1 has 1"):
        qda(x, y, x[:0], y[:0], BINARY)


def test_the_logistic_classifier_needs_validation_rows_to_choose_c() -> None:
    x, y = data()
    split = Split(0, np.arange(100), np.arange(0), np.arange(100, 120))
    with pytest.raises(BadData, match="validation"):
        logistic(x, y, [split], BINARY)
    assert logistic(x, y, [split], BINARY, strengths=(1.0,))[0].notes["c"] == 1.0
