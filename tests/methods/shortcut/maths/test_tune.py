"""The tuned lens: training lowers the divergence, and never makes a map worse."""

import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from cutaway.methods.shortcut.maths.fit import IDENTITY, Shortcut, fit_shortcuts
from cutaway.methods.shortcut.maths.tune import mean_kl, train_tuned_map
from tests.methods.shortcut.maths.test_moments import gather


def test_the_divergence_is_the_mean_kl_over_rows() -> None:
    rng = torch.Generator().manual_seed(0)
    one, other = (torch.randn(7, 11, generator=rng) for _ in range(2))
    expected = kl_divergence(Categorical(logits=one), Categorical(logits=other)).mean()
    torch.testing.assert_close(mean_kl(one.log_softmax(-1), other), expected)


@pytest.mark.parametrize(("fitted", "outlier", "share"), [(False, 1, 0.5), (True, 100, 1.0)])
def test_training_on_the_distribution_lowers_the_divergence(fitted, outlier, share) -> None:
    rng = torch.Generator().manual_seed(0)
    x, head = torch.randn(3000, 6, generator=rng), torch.randn(6, 30, generator=rng)
    final = torch.tanh(x @ torch.randn(6, 6, generator=rng))
    x[:, 0] *= outlier
    start = fit_shortcuts(gather({0: x, 1: final}, [(0, 1)]), 0, [1])[1] if fitted else IDENTITY

    def gap(jump: Shortcut) -> float:
        return float(mean_kl(torch.log_softmax(final @ head, -1), jump(x) @ head))

    tuned = train_tuned_map(start, x, final, lambda h: h @ head, rng=rng, steps=200, rate=0.01)
    assert gap(tuned) < share * gap(start)
    assert not tuned.matrix.requires_grad


def test_the_same_generator_trains_the_same_map_and_no_gain_keeps_the_start() -> None:
    x, head = torch.randn(400, 4), torch.randn(4, 9)
    rngs = [torch.Generator().manual_seed(3) for _ in range(2)]
    options = {"steps": 50, "rate": 1e-2}
    runs = [
        train_tuned_map(IDENTITY, x, x.tanh(), lambda h: h @ head, rng=rng, **options)
        for rng in rngs
    ]
    assert torch.equal(runs[0].matrix, runs[1].matrix)
    assert train_tuned_map(IDENTITY, x, x, lambda h: h @ head, rng=rngs[0], **options) is IDENTITY
