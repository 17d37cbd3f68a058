"""Test accuracy of a logistic probe, which shows whether hidden states still encode the labels."""

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from cutaway.measure.calibration import choose_threshold
from cutaway.measure.intervals import Interval, wilson
from cutaway.measure.splits import Split
from cutaway.solvers.logistic import logistic_with_best_c
from cutaway.solvers.rows import as_row_blocks, check_finite


def probe_accuracy(
    states: Float[Tensor, "n d"], labels: NDArray[np.int64], split: Split, classes: int
) -> Interval:
    """Test accuracy with its Wilson interval; C and the threshold are chosen on validation rows."""
    check_finite(states)
    masks = torch.zeros(2, 1, len(states), dtype=torch.bool)
    for mask, rows in zip(masks, (split.train, split.val), strict=True):
        mask[0, rows] = True
    path, best = logistic_with_best_c(
        states, torch.from_numpy(labels), train=masks[0], val=masks[1], classes=classes
    )
    weights, bias = path.weights[0, best[0]], path.intercept[0, best[0]]
    blocks = as_row_blocks(states, dtype=weights.dtype)
    scores = (torch.cat([block @ weights.T for _, block in blocks]) + bias).cpu().double().numpy()
    if classes == 2:
        threshold = choose_threshold(scores[split.val, 0], labels[split.val], own=0.0)
        predicted = threshold(scores[split.test, 0]).astype(np.int64)
    else:
        predicted = scores[split.test].argmax(1)
    return wilson(int((predicted == labels[split.test]).sum()), len(split.test))
