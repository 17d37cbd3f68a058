"""Linear discriminants against scikit-learn, and the dip at n = d."""

import numpy as np
import pytest
import torch
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from cutaway.core.errors import BadData, BadSpec
from cutaway.solvers.discriminant import discriminant
from cutaway.solvers.rows import RowBlocks


def made(n: int, d: int, classes: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    x = rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
    x += 3 * rng.standard_normal((classes, d))[y]
    x[:, 0] = 100 * x[:, 0] + 300
    return torch.tensor(x), torch.tensor(y)


def folds(n: int) -> torch.Tensor:
    marks = torch.ones(3, n, dtype=torch.bool)
    marks[0, : n // 5] = False
    marks[1, n // 3 :] = False
    return marks


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize(("n", "d"), [(150, 9), (36, 60), (150, 80)])
def test_plain_is_scikit_learns_default(n, d, classes):
    x, y = made(n, d, classes)
    found = discriminant(x, y, classes=classes, folds=folds(n))
    for f, marks in enumerate(folds(n)):
        fit = LinearDiscriminantAnalysis().fit(x[marks].numpy(), y[marks].numpy())
        theirs = fit.decision_function(x.numpy())
        ours = (x @ found.weights[f].T + found.intercept[f]).numpy()
        np.testing.assert_allclose(
            ours.squeeze(), theirs, rtol=1e-5, atol=1e-5 * np.abs(theirs).max()
        )


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(("n", "d"), [(150, 9), (36, 60)])
def test_shrunk_is_scikit_learns_on_features_of_unit_deviation(n, d, classes):
    x, y = made(n, d, classes)
    inside = torch.stack([x[y == k].mean(0) for k in range(classes)])[y]
    z = x / (x - inside).square().mean(0).sqrt()
    fit = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.3).fit(z.numpy(), y.numpy())
    found = discriminant(x, y, classes=classes, shrinkage=0.3)
    ours = (x @ found.weights[0].T + found.intercept[0]).numpy()
    theirs = fit.decision_function(z.numpy())
    if classes > 2:
        # Scores of several classes are known up to one number per row.
        ours, theirs = ours - ours[:, :1], theirs - theirs[:, :1]
    np.testing.assert_allclose(ours.squeeze(), theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("n", "d"), [(150, 9), (36, 60)])
def test_the_automatic_share_is_ledoit_and_wolfs(n, d):
    x, y = made(n, d, 3)
    gaps = x - torch.stack([x[y == k].mean(0) for k in range(3)])[y]
    z = gaps / gaps.square().mean(0).sqrt()
    expected = ledoit_wolf_shrinkage(z.numpy(), assume_centered=True)
    found = discriminant(x, y, classes=3, shrinkage="auto")
    assert float(found.shrinkage) == pytest.approx(expected, rel=1e-8)


def accuracy_at(n: int, d: int, repeats: int = 12) -> float:
    """Mean test accuracy of plain LDA on Gaussian data with one informative direction."""
    right = []
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        y = rng.permutation(np.arange(n + 400) % 2)
        x = rng.standard_normal((n + 400, d)) + 0.3 * (2 * y - 1)[:, None]
        fit = discriminant(torch.tensor(x[:n]), torch.tensor(y[:n]), classes=2)
        said = torch.tensor(x[n:]) @ fit.weights[0, 0] + fit.intercept[0, 0] > 0
        right.append((said.numpy() == y[n:]).mean())
    return float(np.mean(right))


def test_the_learning_curve_dips_where_rows_equal_features():
    before, at, after = (accuracy_at(n, 40) for n in (20, 42, 160))
    assert at < before - 0.05
    assert at < after - 0.05


def test_streaming_equals_in_memory(monkeypatch):
    x, y = made(150, 9, 3)
    for shrinkage in (None, "auto"):
        whole = discriminant(x, y, classes=3, folds=folds(150), shrinkage=shrinkage)
        with monkeypatch.context() as patch:
            patch.setattr("cutaway.solvers.rows.MAX_CAST_BYTES", 0)
            patch.setattr("cutaway.solvers.rows.MAX_MATRIX_ELEMENTS", 1)
            rows = RowBlocks(lambda: x.split(31), 150, 9)
            parts = discriminant(rows, y, classes=3, folds=folds(150), shrinkage=shrinkage)
        torch.testing.assert_close(parts.weights, whole.weights)
        torch.testing.assert_close(parts.shrinkage, whole.shrinkage)


def test_a_constant_feature_gets_no_weight():
    x, y = made(60, 5, 2)
    x[:, 3] = 7.0
    found = discriminant(x, y, classes=2)
    assert float(found.weights[0, 0, 3].abs()) < 1e-8
    assert int(found.rank) == 4


def test_bad_requests_are_refused():
    x, y = made(30, 4, 3)
    with pytest.raises(BadData, match="no training row of class 2"):
        discriminant(x, y, classes=3, folds=(y != 2)[None])
    with pytest.raises(BadSpec, match="shrinkage"):
        discriminant(x, y, classes=3, shrinkage=1.5)
