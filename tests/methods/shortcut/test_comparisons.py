"""Comparisons of maps and times are paired tests over texts."""

import numpy as np
import pytest

from cutaway.methods.shortcut.comparisons import (
    best_map_gain,
    explained_variance_gain,
    log_ratio,
    mean_over_texts,
    paired_over_texts,
)


def r2(target, predicted) -> float:
    spread = ((target - target.mean(axis=0)) ** 2).sum(axis=0)
    return float((1 - ((predicted - target) ** 2).sum(axis=0) / spread).mean())


def test_the_gain_is_the_difference_of_both_r2() -> None:
    rng = np.random.default_rng(0)
    target, texts = rng.normal(size=(60, 5)), np.repeat(np.arange(20), 3)
    first, second = (target + rng.normal(size=(60, 5)) * noise for noise in (0.3, 0.9))
    found = explained_variance_gain(target, first, second, texts)
    expected = r2(target, first) - r2(target, second)
    assert found.interval.mean == pytest.approx(expected)
    assert found.p < 0.001 and found.interval.low < expected < found.interval.high


def test_tokens_of_one_text_are_not_independent() -> None:
    gaps = np.repeat(np.random.default_rng(1).normal(0.1, 0.3, 10), 50)
    texts = np.repeat(np.arange(10), 50)
    by_text = paired_over_texts(gaps, 0 * gaps, texts)
    assert by_text.freedom == 9
    assert by_text.p > paired_over_texts(gaps, 0 * gaps, np.arange(500)).p * 100
    wide, narrow = (mean_over_texts(gaps, of) for of in (texts, np.arange(500)))
    assert wide.high - wide.low > 5 * (narrow.high - narrow.low)


def test_equal_maps_are_hardly_ever_told_apart_though_the_best_of_five_was_chosen() -> None:
    rng, texts, claims = np.random.default_rng(2), np.arange(100), 0
    for _ in range(200):
        correct = {name: rng.random(100) < 0.5 for name in ("id", "a", "b", "c", "d", "e")}
        best = max(correct, key=lambda name: correct[name].mean())
        found = best_map_gain(correct, best, texts)
        claims += found is not None and found.kind == "shown"
    assert claims <= 0.075 * 200


def test_without_another_map_or_the_identity_nothing_is_compared() -> None:
    right = np.ones(4)
    assert best_map_gain({"id": right, "mat": right}, "id", np.arange(4)) is None
    assert best_map_gain({"mat": right}, "mat", np.arange(4)) is None


def test_times_are_compared_as_ratios() -> None:
    found = log_ratio([2.0, 4.0, 8.2], [1.0, 2.0, 4.0])
    assert np.exp(found.interval.mean) == pytest.approx(2.0, rel=0.02) and found.p < 0.01
