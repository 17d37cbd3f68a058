"""Zero-shot answers: the class whose words are likeliest next, plain or calibrated.

A class scores the summed probability of its tokens. Calibrated (Zhao et al. 2021, "Calibrate
Before Use"): scores are divided by those of content-free texts, so that a word the model likes
anyway is no answer.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.core.errors import BadData

CONTENT_FREE = ("N/A", "", "...")
"""Texts that say nothing; their mean is the prior."""


def class_scores(
    logits: Float[Tensor, "n words"], groups: Sequence[Sequence[int]]
) -> Float[Tensor, "n cls"]:
    """Log-probabilities of the classes among themselves; groups are columns of `logits`."""
    summed = [logits[:, list(columns)].double().logsumexp(dim=1) for columns in groups]
    return torch.stack(summed, dim=1).log_softmax(dim=1)


def contextual_calibration(
    scores: Float[Tensor, "n cls"], prior: Float[Tensor, "m cls"]
) -> Float[Tensor, "n cls"]:
    """The scores over the mean probabilities of content-free texts, made to add up again."""
    if len(prior) == 0:
        raise BadData("Calibration needs at least one content-free text, got none.")
    level = prior.exp().mean(dim=0).clamp_min(1e-12).log()
    return (scores - level).log_softmax(dim=1)
