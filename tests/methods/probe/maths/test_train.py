"""The training loop of gradient probes."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from cutaway.core.errors import BadSpec, RunError
from cutaway.methods.probe.maths.fitted import FitSettings
from cutaway.methods.probe.maths.nets import mlp
from cutaway.methods.probe.maths.train import ProbeTraining, gradient_fit


def separable(n: int = 240, d: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    x = rng.normal(3.0, 5.0, (n, d))
    y = ((x - 3.0) @ rng.normal(size=d) > 0).astype(int)
    return torch.from_numpy(x), torch.from_numpy(y)


def fit(net, settings, x, y, training=None):
    return gradient_fit(net, training)(x[:160], y[:160], x[160:], y[160:], settings)


def test_a_linear_layer_learns_what_logistic_regression_learns():
    x, y = separable()
    probe = fit(mlp(1), FitSettings("binary", 2), x, y, ProbeTraining(rate=0.02))
    found = ((probe.scores(x[160:]) > 0) == y[160:]).double().mean()
    expected = LogisticRegression().fit(x[:160], y[:160]).score(x[160:], y[160:])
    assert found >= expected - 0.05
    assert len(probe.notes["train_loss"]) == len(probe.notes["val_loss"])
    best = int(np.argmin(probe.notes["val_loss"])) + 1
    assert probe.notes["best_epoch"] == best


def test_a_regression_is_on_the_scale_of_its_targets():
    x, _ = separable()
    y = 100.0 + 20.0 * x[:, 0]
    probe = fit(mlp(1), FitSettings("regression", 1), x, y, ProbeTraining(rate=0.02))
    assert (probe.scores(x[160:]) - y[160:]).abs().mean() < 0.1 * y.std()


def test_training_neither_uses_nor_changes_the_global_random_state():
    x, y = separable()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = fit(mlp(2), FitSettings("binary", 2), x, y).scores(x)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    assert torch.equal(fit(mlp(2), FitSettings("binary", 2), x, y).scores(x), first)
    other = fit(mlp(2), FitSettings("binary", 2, seed=1), x, y).scores(x)
    assert not torch.equal(other, first)


def test_balanced_classes_move_the_scores_towards_the_rare_class():
    x, _ = separable()
    y = (x[:, 0] > 9.0).long()
    plain = fit(mlp(1), FitSettings("binary", 2), x, y).scores(x)
    balanced = fit(mlp(1), FitSettings("binary", 2, balanced=True), x, y).scores(x)
    assert balanced.mean() > plain.mean()


def test_small_training_sets_get_more_epochs():
    training = ProbeTraining()
    assert training.rounds(100_000) == training.epochs
    assert training.rounds(10) == training.least
    # 129 rows are one batch: the last row joins it.
    assert training.rounds(129) == training.least


def test_a_network_with_the_wrong_number_of_outputs_is_refused():
    x, y = separable()
    with pytest.raises(BadSpec, match=r"must give shape \(2, 1\)"):
        fit(lambda d, outputs: nn.Linear(d, 3), FitSettings("binary", 2), x, y)


class NotFinite(nn.Linear):
    def forward(self, x):
        return super().forward(x) * float("nan")


def test_a_loss_that_is_never_finite_is_an_error():
    x, y = separable()
    with pytest.raises(RunError, match="never finite"):
        fit(NotFinite, FitSettings("binary", 2), x, y)
