"""The logistic probe of retained sets: what it must and must not find."""

import numpy as np
import pytest
import torch

from cutaway.core.errors import BadData
from cutaway.measure.intervals import wilson
from cutaway.measure.splits import Split
from cutaway.methods.inject.maths.probe_accuracy import probe_accuracy


def states(classes: int, gap: float, seed: int = 0) -> tuple[torch.Tensor, np.ndarray, Split]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=240)
    x = rng.standard_normal((240, 6)) + gap * np.eye(6)[labels]
    rows = rng.permutation(240)
    return torch.tensor(x).float(), labels, Split(0, rows[:120], rows[120:160], rows[160:])


@pytest.mark.parametrize("classes", [2, 4])
def test_separable_classes_are_found_and_noise_is_at_chance(classes) -> None:
    assert probe_accuracy(*states(classes, 12.0), classes) == wilson(80, 80)
    noise = probe_accuracy(*states(classes, 0.0), classes)
    assert noise.low < 1 / classes < noise.high


def test_validation_rows_of_one_class_do_not_move_the_threshold() -> None:
    # The best threshold of such rows predicts that class everywhere.
    x, labels, split = states(2, 1.0)
    ones = split.val[labels[split.val] == 1]
    only_ones = Split(0, split.train, ones, split.test)
    right = int((labels[split.test] == 1).sum())
    assert probe_accuracy(x, labels, only_ones, 2).mean > right / 80 + 0.2


def test_states_that_are_not_finite_are_refused() -> None:
    x, labels, split = states(2, 1.0)
    x[3, 2] = float("nan")
    with pytest.raises(BadData, match="NaN or infinite"):
        probe_accuracy(x, labels, split, 2)
