"""The online code: what labels cost."""

import numpy as np
import pytest
import torch

from cutaway.core.errors import BadData
from cutaway.methods.probe.maths.mdl import code_length
from cutaway.solvers.rows import RowBlocks


def made(n: int = 600, d: int = 10, classes: int = 2) -> tuple[torch.Tensor, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, d))
    y = np.digitize(x[:, 0], np.quantile(x[:, 0], np.arange(1, classes) / classes))
    return torch.tensor(x), y


@pytest.mark.parametrize("classes", [2, 4])
def test_labels_that_features_tell_are_cheap_and_others_cost_the_uniform_code(classes):
    x, y = made(classes=classes)
    told = code_length(x, y, classes=classes, seed=0)
    random = code_length(x, np.random.default_rng(1).permutation(y), classes=classes, seed=0)
    assert told.uniform_bits == pytest.approx(600 * np.log2(classes))
    assert told.prior_bits == pytest.approx(told.uniform_bits)
    assert told.compression > 1.7
    assert 0.85 < random.compression < 1.02


def test_class_frequencies_are_not_credited_to_features_that_say_nothing():
    y = (np.arange(400) % 10 == 0).astype(int)
    code = code_length(torch.ones(400, 3), y, classes=2, seed=0)
    entropy = -400 * (0.1 * np.log2(0.1) + 0.9 * np.log2(0.9))
    assert code.prior_bits == pytest.approx(entropy)
    assert code.prior_bits <= code.bits < code.uniform_bits == 400
    assert code.compression == pytest.approx(code.prior_bits / code.bits) and code.compression <= 1


def test_only_the_chosen_rows_are_sent():
    x, y = made(300)
    rows = np.random.default_rng(3).permutation(300)[:200]
    code = code_length(x, y, classes=2, seed=0, chosen_rows=rows)
    alone = code_length(x[np.sort(rows)], y[np.sort(rows)], classes=2, seed=0)
    assert code.bits == pytest.approx(alone.bits, rel=2e-3) and code.sizes == alone.sizes
    assert (code.prior_bits, code.uniform_bits) == (alone.prior_bits, alone.uniform_bits)
    others = np.setdiff1d(np.arange(300), rows)
    x[others], y[others] = -x[others], 1 - y[others]
    again = code_length(x, y, classes=2, seed=0, chosen_rows=rows)
    assert again.block_bits == pytest.approx(code.block_bits, rel=2e-3)


def test_the_blocks_add_up_and_double():
    x, y = made()
    code = code_length(x, y, classes=2, seed=0)
    assert sum(code.block_bits) == pytest.approx(code.bits)
    assert code.sizes[-1] == 600
    assert len(code.block_bits) == len(code.sizes) == len(code.strengths) + 1
    assert all(b <= 2.5 * a for a, b in zip(code.sizes, code.sizes[1:], strict=False))


def test_later_labels_never_change_the_price_of_earlier_ones():
    x, y = made()
    order = np.argsort(np.random.default_rng(0).random(600), kind="stable")
    late = order[300:]
    wrong = y.copy()
    wrong[late] = 1 - wrong[late]
    honest, spoiled = (code_length(x, labels, classes=2, seed=0) for labels in (y, wrong))
    border = honest.sizes.index(300)
    np.testing.assert_allclose(
        honest.block_bits[: border + 1], spoiled.block_bits[: border + 1], rtol=1e-6
    )
    assert honest.block_bits[border + 1] < spoiled.block_bits[border + 1]


def test_labels_that_go_together_cost_the_sum_of_one_bit_codes():
    x, y = made()
    both = np.stack([y, np.random.default_rng(2).integers(0, 2, 600)], 1)
    code = code_length(x, both, classes=2, seed=0)
    assert code.uniform_bits == 1200
    assert code.prior_bits == pytest.approx(1200, rel=0.01)
    assert 600 < code.bits < 1000


def test_streaming_equals_in_memory():
    x, y = made(200)
    rows = RowBlocks(lambda: x.split(37), *x.shape)
    whole, parts = (code_length(v, y, classes=2, seed=0) for v in (x, rows))
    assert parts.bits == pytest.approx(whole.bits, rel=1e-6)


def test_a_class_that_comes_late_still_has_a_finite_price():
    x, y = made(200)
    y = y.copy()
    order = np.argsort(np.random.default_rng(0).random(200), kind="stable")
    y[order[150]] = 2
    assert np.isfinite(code_length(x, y, classes=3, seed=0).bits)


def test_too_little_to_code_is_refused():
    x, y = made(60)
    with pytest.raises(BadData, match="at least 16 rows"):
        code_length(x[:10], y[:10], classes=2, seed=0)
    with pytest.raises(BadData, match="two classes"):
        code_length(x, np.zeros(60, dtype=int), classes=2, seed=0)
