"""The batched logistic path against scikit-learn, and its own invariants."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cutaway.core.errors import BadData, BadSpec, Mismatch
from cutaway.solvers.logistic import C_GRID, logistic_path, logistic_with_best_c
from cutaway.solvers.rows import RowBlocks

STRENGTHS = (1e-4, 1e-2, 1.0, 100.0)
TIGHT = {"tol": 1e-10, "max_iter": 5000}


def features(n: int = 240, d: int = 12, *, seed: int = 0, outliers: bool = True) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
    if outliers:
        x[:, 1] = 100 * x[:, 1] + 300
        x[:, 5] = 100 * x[:, 5] - 50
    return torch.tensor(x)


def noisy(x: torch.Tensor, classes: int = 2, *, seed: int = 1) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    z = ((x - x.mean(0)) / x.std(0)).numpy()
    logits = z @ rng.standard_normal((x.shape[1], classes)) + rng.gumbel(size=(len(x), classes)) * 3
    return torch.tensor(logits.argmax(1))


def two_folds(n: int) -> torch.Tensor:
    marks = torch.ones(2, n, dtype=torch.bool)
    marks[0, : n // 4] = False
    marks[1, n // 2 :] = False
    return marks


def sklearn_fit(x, y, c, *, standardise, balanced):
    model = LogisticRegression(
        C=c, tol=1e-12, max_iter=100_000, class_weight="balanced" if balanced else None,
        solver="newton-cholesky",
    )  # fmt: skip
    chain = make_pipeline(StandardScaler(with_std=standardise), model).fit(x, y)
    scale = chain[0].scale_ if standardise else 1.0
    weights = model.coef_ / scale
    return weights, model.intercept_ - weights @ chain[0].mean_


@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("classes", [2, 4])
def test_every_fold_and_strength_has_scikit_learns_weights(classes, balanced, standardise):
    x = features()
    y = noisy(x, classes)
    folds = two_folds(len(x))
    path = logistic_path(
        x, y, strengths=STRENGTHS, folds=folds, classes=classes, balanced=balanced,
        standardise=standardise, **TIGHT,
    )  # fmt: skip
    assert bool(path.converged.all())
    for f, marks in enumerate(folds):
        for k, c in enumerate(STRENGTHS):
            weights, bias = sklearn_fit(
                x[marks].numpy(), y[marks].numpy(), c, standardise=standardise, balanced=balanced
            )
            ours, bent = path.weights[f, k].numpy(), path.intercept[f, k].numpy()
            size = np.abs(weights * x.std(0).numpy()).max()
            assert np.abs((ours - weights) * x.std(0).numpy()).max() < 1e-4 * size
            # Softmax intercepts are known up to one number for all classes.
            gap = bent - bias
            np.testing.assert_allclose(gap - (gap.mean() if classes > 2 else 0), 0, atol=1e-4)


def objective(x, y, weights, bias, c):
    """scikit-learn's, written out for a binary problem on unscaled features."""
    z = x.numpy() @ weights + bias
    signs = 2 * y.numpy() - 1
    return c * np.logaddexp(0, -signs * z).sum() + 0.5 * (weights**2).sum()


@pytest.mark.parametrize("c", STRENGTHS)
def test_the_objective_is_the_one_it_says_and_no_worse_than_scikit_learns(c):
    x = features(outliers=False)
    y = noisy(x)
    path = logistic_path(x, y, strengths=(c,), standardise=False, **TIGHT)
    ours = objective(x, y, path.weights[0, 0, 0].numpy(), float(path.intercept[0, 0, 0]), c)
    assert float(path.objective[0, 0]) == pytest.approx(ours, rel=1e-9)
    weights, bias = sklearn_fit(x.numpy(), y.numpy(), c, standardise=False, balanced=False)
    assert ours == pytest.approx(objective(x, y, weights[0], float(bias[0]), c), rel=1e-6)


def test_the_gradient_that_is_reported_is_the_gradient_there():
    x = features(outliers=False)
    y = noisy(x)
    path = logistic_path(x, y, strengths=(1.0,), standardise=False, tol=1e-3)
    w = path.weights[0, 0, 0].clone().requires_grad_()
    b = path.intercept[0, 0].clone().requires_grad_()
    z = x @ w + b
    loss = torch.nn.functional.binary_cross_entropy_with_logits(z, y.double())
    (loss + 0.5 * w.square().sum() / len(x)).backward()
    mean_shift = x.mean(0) * b.grad
    inner = torch.cat([w.grad - mean_shift, b.grad]).abs().max()
    assert float(path.gradient[0, 0]) == pytest.approx(float(inner), rel=1e-6)
    assert float(inner) <= 1e-3


def test_each_label_of_many_is_a_fit_of_its_own():
    x = features()
    y = torch.stack([noisy(x, seed=1), noisy(x, seed=2), noisy(x, seed=3)], 1)
    y[:, 2] &= y[:, 0]
    folds = two_folds(len(x))
    for balanced in (False, True):
        path = logistic_path(x, y, strengths=STRENGTHS, folds=folds, balanced=balanced, **TIGHT)
        assert path.weights.shape == (2, len(STRENGTHS), 3, x.shape[1])
        for k in range(3):
            one = logistic_path(
                x, y[:, k], strengths=STRENGTHS, folds=folds, balanced=balanced, **TIGHT
            )
            torch.testing.assert_close(
                path.weights[:, :, k], one.weights[:, :, 0], rtol=1e-5, atol=1e-8
            )


@pytest.mark.parametrize("standardise", [True, False])
def test_more_features_than_rows_have_scikit_learns_weights_too(standardise):
    x = features(40, 90)
    y = noisy(x)
    path = logistic_path(x, y, strengths=(0.01, 1.0), standardise=standardise, **TIGHT)
    for k, c in enumerate((0.01, 1.0)):
        weights, _ = sklearn_fit(x.numpy(), y.numpy(), c, standardise=standardise, balanced=False)
        np.testing.assert_allclose(
            path.weights[0, k].numpy(), weights, atol=1e-4 * np.abs(weights).max()
        )


def blocks_of(x: torch.Tensor, size: int) -> RowBlocks:
    return RowBlocks(lambda: x.float().split(size), x.shape[0], x.shape[1])


@pytest.mark.parametrize("classes", [2, 3])
def test_streaming_equals_in_memory(classes, monkeypatch):
    x = features()
    y = noisy(x, classes)
    whole = logistic_path(x.float(), y, strengths=STRENGTHS, classes=classes, **TIGHT)
    monkeypatch.setattr("cutaway.solvers.rows.MAX_CAST_BYTES", 0)
    parts = logistic_path(blocks_of(x, 37), y, strengths=STRENGTHS, classes=classes, **TIGHT)
    torch.testing.assert_close(parts.weights, whole.weights, rtol=1e-5, atol=1e-9)


def test_rows_outside_a_fold_change_nothing():
    x = features()
    y = noisy(x)
    folds = two_folds(len(x))
    before = logistic_path(x, y, strengths=STRENGTHS, folds=folds[:1], **TIGHT)
    spoiled, wrong = x.clone(), y.clone()
    spoiled[~folds[0]] = 7 * spoiled[~folds[0]] - 3
    wrong[~folds[0]] = 1 - wrong[~folds[0]]
    after = logistic_path(spoiled, wrong, strengths=STRENGTHS, folds=folds[:1], **TIGHT)
    torch.testing.assert_close(after.weights, before.weights, rtol=1e-5, atol=1e-9)


def test_float32_finds_the_same_decisions_as_float64():
    x = features(600)
    y = noisy(x)
    double = logistic_path(x, y, strengths=STRENGTHS)
    blocks = RowBlocks(lambda: x.split(128), *x.shape, dtype=torch.float32)
    single = logistic_path(blocks, y, strengths=STRENGTHS)
    same = (double.logits(x) > 0) == (single.logits(x) > 0)
    assert float(same.double().mean()) > 0.995


def test_outlier_dimensions_cost_few_iterations():
    x = features(800, 40)
    y = noisy(x)
    path = logistic_path(x, y, strengths=(1e-4, 1.0, 1e4), standardise=False)
    assert bool(path.converged.all())
    assert int(path.iterations.max()) <= 25


def test_separable_data_at_a_large_strength_are_all_right():
    x = features(100, 30)
    y = (x[:, 0] > x[:, 0].median()).long()
    path = logistic_path(x, y, strengths=(1e4,))
    assert torch.equal((path.logits(x)[0, 0, :, 0] > 0).long(), y)


def test_a_gap_keeps_weak_penalties_from_stopping_halfway():
    # More features than rows: every gradient is small long before the minimum is near.
    x = features(40, 200, outliers=False)
    y = noisy(x)
    wanted = logistic_path(x, y, strengths=(1e3,), **TIGHT).objective
    hasty = logistic_path(x, y, strengths=(1e3,))
    patient = logistic_path(x, y, strengths=(1e3,), gap=1e-3)
    assert float(hasty.objective / wanted) > 1.05
    assert float(patient.objective / wanted) < 1.01


def test_a_search_cut_short_says_so():
    x = features()
    path = logistic_path(x, noisy(x), strengths=(1.0,), tol=1e-10, max_iter=2)
    assert not bool(path.converged.any())
    assert int(path.iterations[0, 0]) == 2


def test_many_problems_in_small_groups_are_the_same(monkeypatch):
    x = features()
    y = noisy(x, 3)
    at_once = logistic_path(x, y, strengths=STRENGTHS, classes=3, **TIGHT)
    monkeypatch.setattr("cutaway.solvers.logistic.MAX_SEARCH_ELEMENTS", 50)
    few = logistic_path(x, y, strengths=STRENGTHS, classes=3, **TIGHT)
    torch.testing.assert_close(few.weights, at_once.weights, rtol=1e-5, atol=1e-9)


def test_bad_requests_are_refused():
    x = features()
    y = noisy(x)
    with pytest.raises(BadSpec, match="above 0"):
        logistic_path(x, y, strengths=(0.0,))
    with pytest.raises(BadData, match="one class only"):
        logistic_path(x, torch.ones(len(x), dtype=torch.long), strengths=(1.0,))
    with pytest.raises(BadData, match="class numbers 0 to 1"):
        logistic_path(x, y + 1, strengths=(1.0,))
    with pytest.raises(BadData, match="no training row"):
        logistic_path(x, y, strengths=(1.0,), folds=torch.zeros(1, len(x), dtype=torch.bool))
    with pytest.raises(Mismatch, match="labels for"):
        logistic_path(blocks_of(x, 50), y[:-1], strengths=(1.0,))


def problem(classes: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((150, 8))
    y = (x[:, :classes] + 0.5 * rng.gumbel(size=(150, classes))).argmax(1)
    return torch.tensor(x), torch.tensor(y)


def masks(*bounds: tuple[int, int]) -> torch.Tensor:
    made = torch.zeros(len(bounds), 150, dtype=torch.bool)
    for row, (low, high) in zip(made, bounds, strict=True):
        row[low:high] = True
    return made


@pytest.mark.parametrize("classes", [2, 3])
def test_each_fold_gets_the_c_with_the_lowest_validation_loss(classes) -> None:
    x, y = problem(classes)
    train, val = masks((0, 80), (40, 120)), masks((80, 110), (0, 40))
    path, best = logistic_with_best_c(x, y, train=train, val=val, classes=classes)
    assert path.strengths == C_GRID
    for fold in range(2):
        fit, held = train[fold].numpy(), val[fold].numpy()
        losses = [
            log_loss(
                y[held],
                make_pipeline(StandardScaler(), LogisticRegression(C=c, tol=1e-8, max_iter=5000))
                .fit(x[fit], y[fit])
                .predict_proba(x[held]),
            )
            for c in C_GRID
        ]
        assert losses[int(best[fold])] == pytest.approx(min(losses), rel=1e-3)


def test_a_single_c_needs_no_validation_rows() -> None:
    x, y = problem(2)
    none = torch.zeros(1, 150, dtype=torch.bool)
    path, best = logistic_with_best_c(x, y, train=masks((0, 100)), val=none, strengths=(0.5,))
    assert path.strengths == (0.5,)
    assert best.tolist() == [0]
