"""Each method's core, calculated a second time: plain loops over Python floats, nothing of ours."""

import math

import numpy as np
import pytest
import torch

from cutaway.measure import metrics
from cutaway.methods.graft.maths.select import scores_from, top_mask
from cutaway.methods.inject.maths.fisher_rules import OuterProductUse, add_squared_gradients
from cutaway.methods.inject.maths.penalty import fused_penalty, penalty
from cutaway.methods.nextword.maths.readout import OutputHead, expectations
from cutaway.methods.shortcut.maths.fit import fit_shortcuts
from cutaway.methods.shortcut.maths.lens import final_distribution, layer_predictions
from cutaway.methods.shortcut.maths.moments import MomentAccumulator, layer_pairs
from cutaway.solvers.logistic import logistic_path

Matrix = list[list[float]]


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def solved(matrix: Matrix, right: list[float]) -> list[float]:
    """Gauss with pivots."""
    rows = [[*line, r] for line, r in zip(matrix, right, strict=True)]
    size = len(rows)
    for i in range(size):
        best = max(range(i, size), key=lambda k: abs(rows[k][i]))
        rows[i], rows[best] = rows[best], rows[i]
        for k in range(i + 1, size):
            share = rows[k][i] / rows[i][i]
            rows[k] = [a - share * b for a, b in zip(rows[k], rows[i], strict=True)]
    found = [0.0] * size
    for i in reversed(range(size)):
        rest = sum(rows[i][k] * found[k] for k in range(i + 1, size))
        found[i] = (rows[i][size] - rest) / rows[i][i]
    return found


def newton(x: Matrix, y: list[int], strength: float) -> list[float]:
    """The weights, then the intercept, that minimise C * sum of losses + ||w||^2 / 2."""
    width = len(x[0])
    at = [0.0] * (width + 1)
    for _ in range(50):
        slope = [*at[:width], 0.0]
        bend = [[float(i == k and i < width) for k in range(width + 1)] for i in range(width + 1)]
        for row, label in zip(x, y, strict=True):
            full = [*row, 1.0]
            p = 1 / (1 + math.exp(-sum(a * b for a, b in zip(full, at, strict=True))))
            for i in range(width + 1):
                slope[i] += strength * (p - label) * full[i]
                for k in range(width + 1):
                    bend[i][k] += strength * p * (1 - p) * full[i] * full[k]
        at = [a - s for a, s in zip(at, solved(bend, slope), strict=True)]
    return at


@pytest.mark.parametrize("strength", [0.01, 1.0])
def test_probe_the_logistic_optimum(strength) -> None:
    x = drawn(60, 3)
    y = (x[:, 0] + drawn(60, seed=1) > 0).long()
    found = logistic_path(x, y, strengths=[strength], standardise=False, tol=1e-10)
    right = newton(x.tolist(), y.tolist(), strength)
    got = [*found.weights[0, 0, 0].tolist(), float(found.intercept[0, 0, 0])]
    assert got == pytest.approx(right, abs=1e-6)


def test_nextword_the_conditional_mean_and_the_log_partition() -> None:
    f, phi = drawn(4, 3), drawn(11, 3, seed=1)
    found = expectations(f, OutputHead(phi), {"phi_p": phi})
    for i, state in enumerate(f.tolist()):
        raw = [
            math.exp(sum(a * b for a, b in zip(state, word, strict=True))) for word in phi.tolist()
        ]
        total = math.fsum(raw)
        mean = [math.fsum(r * w[k] for r, w in zip(raw, phi.tolist(), strict=True)) / total
                for k in range(3)]  # fmt: skip
        assert found.values["phi_p"][i].tolist() == pytest.approx(mean, rel=1e-10)
        assert float(found.logz[i]) == pytest.approx(math.log(total), rel=1e-10)


def test_shortcut_the_least_squares_map_and_its_bias() -> None:
    source, target = drawn(40, 3), drawn(40, 3, seed=1)
    target = source @ drawn(3, 3, seed=2) + 0.1 * target + 5
    gatherer = MomentAccumulator(layer_pairs(1), cross=torch.float64)
    gatherer.add({0: source, 1: target})
    jump = fit_shortcuts(gatherer.moments(), 0, [1], intercept=True)[1]
    columns = [[*row, 1.0] for row in source.tolist()]
    gram = [[math.fsum(r[i] * r[k] for r in columns) for k in range(4)] for i in range(4)]
    for k in range(3):
        right = [math.fsum(r[i] * t[k] for r, t in zip(columns, target.tolist(), strict=True))
                 for i in range(4)]  # fmt: skip
        weights = solved(gram, right)
        said = [math.fsum(a * b for a, b in zip(r, weights, strict=True)) for r in columns]
        assert jump(source.float())[:, k].tolist() == pytest.approx(said, abs=1e-4)


def test_shortcut_what_a_layer_says_beside_what_the_model_says() -> None:
    full, layer = drawn(3, 7), drawn(3, 7, seed=1)
    found = layer_predictions(layer, final_distribution(full))
    for i in range(3):
        p, q = ([math.exp(v) for v in rows[i].tolist()] for rows in (full, layer))
        p, q = ([v / math.fsum(of_) for v in of_] for of_ in (p, q))
        guess = max(range(7), key=lambda k: q[k])
        assert int(found.guess[i]) == guess
        assert int(found.rank[i]) == sorted(range(7), key=lambda k: -p[k]).index(guess)
        kl = math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
        entropy = -math.fsum(b * math.log(b) for b in q)
        high, second = sorted(q)[-1], sorted(q)[-2]
        got = [float(getattr(found, n)[i]) for n in ("surprisal", "kl", "entropy", "gap")]
        assert got == pytest.approx([-math.log(p[guess]), kl, entropy, high - second], abs=1e-5)


def test_graft_the_largest_movements_over_all_tensors_together() -> None:
    scores = {"a": drawn(4, 5).abs(), "b": drawn(7, seed=1).abs()}
    mask = top_mask(["a", "b"], scores_from(scores), 6)
    every = sorted(
        ((-v, n, i) for n in scores for i, v in enumerate(scores[n].reshape(-1).tolist()))
    )
    right: dict[str, list[int]] = {}
    for _, name, place in every[:6]:
        right.setdefault(name, []).append(place)
    assert {n: p.tolist() for n, p in mask.indices.items()} == {
        n: sorted(p) for n, p in right.items()
    }


def test_inject_the_squares_of_each_examples_gradient() -> None:
    """The gradient of y = W x summed over the tokens of an example, squared, then over examples."""
    left, right = drawn(3, 5, 2), drawn(3, 5, 4, seed=1)
    total = torch.zeros(2, 4, dtype=torch.float64)
    add_squared_gradients(total, [OuterProductUse(left, right)])
    for i in range(2):
        for k in range(4):
            each = [math.fsum(float(left[b, t, i] * right[b, t, k]) for t in range(5))
                    for b in range(3)]  # fmt: skip
            assert float(total[i, k]) == pytest.approx(math.fsum(g * g for g in each), rel=1e-10)


def test_inject_the_penalty_and_its_gradient() -> None:
    now, start, fisher = drawn(3, 2), drawn(3, 2, seed=1), drawn(3, 2, seed=2).abs()
    right = (
        0.5
        * 0.7
        * math.fsum(
            w * (a - b) ** 2
            for a, b, w in zip(*(t.reshape(-1).tolist() for t in (now, start, fisher)), strict=True)
        )
    )
    held = now.clone().requires_grad_()
    found = fused_penalty({"w": held}, {"w": start}, {"w": fisher}, 0.7)
    found.backward()
    assert float(found.detach()) == pytest.approx(right, rel=1e-6)
    assert float(penalty({"w": now}, {"w": start}, {"w": fisher}, 0.7)) == pytest.approx(right)
    slope = [0.7 * w * (a - b) for a, b, w in
             zip(*(t.reshape(-1).tolist() for t in (now, start, fisher)), strict=True)]  # fmt: skip
    assert held.grad is not None
    assert held.grad.reshape(-1).tolist() == pytest.approx(slope, rel=1e-6)


def test_measures_by_counting() -> None:
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 2, 50), rng.normal(size=50).round(1)
    decided = (scores > 0).astype(int)
    tp, fp, fn, tn = (
        sum(1 for a, b in zip(labels, decided, strict=True) if (a, b) == pair)
        for pair in ((1, 1), (0, 1), (1, 0), (0, 0))
    )
    assert metrics.accuracy(labels, decided) == pytest.approx((tp + tn) / 50)
    assert metrics.f1(labels, decided) == pytest.approx(2 * tp / (2 * tp + fp + fn))
    below = math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    assert metrics.mcc(labels, decided) == pytest.approx((tp * tn - fp * fn) / below)
    pairs = [(a > b) + (a == b) / 2
             for a in scores[labels == 1] for b in scores[labels == 0]]  # fmt: skip
    assert metrics.auc(labels, scores) == pytest.approx(sum(pairs) / len(pairs))
