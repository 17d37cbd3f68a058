"""Zero-shot classification: the class whose words are most likely next, with calibration.

A class scores the summed probability of its tokens. Contextual calibration (Zhao et al. 2021,
"Calibrate Before Use") divides by the scores of content-free texts, which removes the model's
preference for a word regardless of the text.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.core.errors import BadData

CONTENT_FREE = ("N/A", "", "...")
"""Texts without content; their mean score is the prior."""


def class_scores(
    logits: Float[Tensor, "n words"], groups: Sequence[Sequence[int]]
) -> Float[Tensor, "n cls"]:
    """Log-probabilities of the classes, normalised; `groups` are the columns of each class."""
    summed = [logits[:, list(columns)].double().logsumexp(dim=1) for columns in groups]
    return torch.stack(summed, dim=1).log_softmax(dim=1)


def contextual_calibration(
    scores: Float[Tensor, "n cls"], prior: Float[Tensor, "m cls"]
) -> Float[Tensor, "n cls"]:
    """The scores divided by the mean probabilities of content-free texts, normalised."""
    if len(prior) == 0:
        raise BadData("Calibration needs at least one content-free text, got none.")
    level = prior.exp().mean(dim=0).clamp_min(1e-12).log()
    return (scores - level).log_softmax(dim=1)
