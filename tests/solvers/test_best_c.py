"""The C chosen on validation rows, against scikit-learn's own log-loss."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cutaway.solvers.best_c import C_GRID, logistic_with_best_c


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
