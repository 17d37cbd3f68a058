"""The ridge path against scikit-learn and against leaving out one row at a time."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cutaway.core.errors import BadData, BadSpec, Mismatch
from cutaway.solvers.ridge import ridge_path
from cutaway.solvers.rows import RowBlocks

ALPHAS = (1e-2, 1.0, 1e3)


def made(n: int, d: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
    x[:, 0] = 100 * x[:, 0] + 300
    y = x[:, :3] @ rng.standard_normal((3, 2)) / 50 + rng.standard_normal((n, 2))
    return torch.tensor(x), torch.tensor(y)


def halves(n: int) -> torch.Tensor:
    marks = torch.ones(2, n, dtype=torch.bool)
    marks[0, ::5] = False
    marks[1, 1::3] = False
    return marks


@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize(("n", "d"), [(90, 7), (30, 50), (90, 65)])
def test_every_fold_and_alpha_has_scikit_learns_weights(n, d, standardise):
    x, y = made(n, d)
    path = ridge_path(x, y, alphas=ALPHAS, folds=halves(n), standardise=standardise)
    for f, marks in enumerate(halves(n)):
        for k, alpha in enumerate(ALPHAS):
            chain = make_pipeline(StandardScaler(with_std=standardise), Ridge(alpha))
            chain.fit(x[marks].numpy(), y[marks].numpy())
            ours = x @ path.weights[f, k].T + path.intercept[f, k]
            np.testing.assert_allclose(ours, chain.predict(x.numpy()), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("n", "d"), [(40, 6), (15, 25)])
def test_leave_one_out_equals_leaving_out_one_at_a_time(n, d):
    x, y = made(n, d)
    path = ridge_path(x, y, alphas=ALPHAS, standardise=False)
    for k, alpha in enumerate(ALPHAS):
        errors = []
        for i in range(n):
            rest = np.arange(n) != i
            fit = Ridge(alpha).fit(x[rest].numpy(), y[rest].numpy())
            errors.append((fit.predict(x[i : i + 1].numpy())[0] - y[i].numpy()) ** 2)
        np.testing.assert_allclose(path.loo[0, k], np.mean(errors, 0), rtol=1e-6)


def test_the_best_alpha_is_small_without_noise_and_large_without_signal():
    x, _ = made(80, 5)
    exact = x @ torch.ones(5, 1, dtype=torch.float64)
    random = torch.randn(80, 1, generator=torch.Generator().manual_seed(0)).double()
    assert int(ridge_path(x, exact, alphas=ALPHAS).best()) == 0
    assert int(ridge_path(x, random, alphas=ALPHAS).best()) == 2


def test_streaming_equals_in_memory(monkeypatch):
    x, y = made(90, 7)
    whole = ridge_path(x, y, alphas=ALPHAS, folds=halves(90))
    monkeypatch.setattr("cutaway.solvers.rows.MAX_CAST_BYTES", 0)
    monkeypatch.setattr("cutaway.solvers.rows.MAX_MATRIX_ELEMENTS", 1)
    parts = ridge_path(RowBlocks(lambda: x.split(13), 90, 7), y, alphas=ALPHAS, folds=halves(90))
    torch.testing.assert_close(parts.weights, whole.weights)
    torch.testing.assert_close(parts.loo, whole.loo)


def test_bad_requests_are_refused():
    x, y = made(20, 3)
    with pytest.raises(BadSpec, match="alpha"):
        ridge_path(x, y, alphas=())
    with pytest.raises(BadData, match="two training rows"):
        ridge_path(x, y, alphas=(1.0,), folds=torch.zeros(1, 20, dtype=torch.bool))
    with pytest.raises(Mismatch, match="19 targets"):
        ridge_path(RowBlocks(lambda: x.split(5), 20, 3), y[:-1], alphas=(1.0,))
