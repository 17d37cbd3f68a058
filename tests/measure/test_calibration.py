"""Reliability bins and the gap they show."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import BadSpec
from cutaway.measure.calibration import ece, reliability


def slowly(confidence, right, bins):
    """The expected calibration error as the paper writes it."""
    total = 0.0
    for low, high in zip(np.arange(bins) / bins, np.arange(1, bins + 1) / bins, strict=True):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return total


@given(n=st.integers(1, 80), classes=st.integers(2, 4), seed=st.integers(0, 999))
@settings(max_examples=40, deadline=None)
def test_ece_is_the_papers_sum_over_bins(n, classes, seed):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(classes), n)
    labels = rng.integers(0, classes, n)
    right = probabilities.argmax(1) == labels
    expected = slowly(probabilities.max(1), right, 15)
    assert ece(probabilities, labels) == pytest.approx(expected)
    if classes == 2:
        assert ece(probabilities[:, 1], labels) == pytest.approx(expected)


def test_sure_and_right_is_0_sure_and_wrong_is_1():
    labels = np.array([0, 1, 1, 0])
    assert ece(labels.astype(float), labels) == 0.0
    assert ece(1.0 - labels, labels) == 1.0


def test_the_share_of_a_class_as_its_probability_is_calibrated():
    labels = np.array([1, 0, 0, 0])
    assert ece(np.full(4, 0.25), labels) == pytest.approx(0.0)


@given(n=st.integers(1, 60), bins=st.integers(1, 20), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_every_answer_is_in_the_bin_of_its_confidence(n, bins, seed):
    rng = np.random.default_rng(seed)
    found = reliability(rng.random(n), rng.integers(0, 2, n), bins=bins)
    assert found.count.sum() == n
    assert len(found.edges) == bins + 1
    full = found.count > 0
    assert (found.confidence[full] > found.edges[:-1][full] - 1e-12).all()
    assert (found.confidence[full] <= found.edges[1:][full] + 1e-12).all()
    assert np.isnan(found.accuracy[~full]).all()
    assert np.isnan(found.confidence[~full]).all()


@pytest.mark.parametrize("scores", [[-0.1, 0.5], [0.5, 3.0]])
def test_scores_that_are_no_probabilities_have_no_ece(scores):
    assert np.isnan(ece(np.array(scores), np.array([0, 1])))


def test_no_bins_are_refused():
    with pytest.raises(BadSpec, match="bins must be at least 1, got 0"):
        reliability(np.array([0.5]), np.array([1]), bins=0)
