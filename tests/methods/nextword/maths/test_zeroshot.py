"""Class scores and contextual calibration."""

import pytest
import torch

from cutaway.core.errors import BadData
from cutaway.methods.nextword.maths.zeroshot import class_scores, contextual_calibration

DOUBLE = torch.float64


def log_p(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=DOUBLE).log()


def test_class_scores_sum_the_probabilities_of_a_words_tokens() -> None:
    scores = class_scores(log_p([0.1, 0.2, 0.3]), [[0, 1], [2]])
    torch.testing.assert_close(scores, log_p([0.5, 0.5]))


def test_class_scores_do_not_change_with_the_log_partition() -> None:
    logits = torch.randn(4, 3, dtype=DOUBLE)
    groups = [[0], [1, 2]]
    torch.testing.assert_close(class_scores(logits + 7.0, groups), class_scores(logits, groups))


def test_calibration_makes_a_content_free_text_undecided() -> None:
    free = log_p([0.9, 0.1])
    torch.testing.assert_close(contextual_calibration(free, free), log_p([0.5, 0.5]))
    assert contextual_calibration(log_p([0.8, 0.2]), free).argmax() == 1


def test_the_prior_is_the_mean_probability_of_the_content_free_texts() -> None:
    prior = log_p([0.9, 0.1], [0.5, 0.5])
    calibrated = contextual_calibration(log_p([0.7, 0.3]), prior)
    torch.testing.assert_close(calibrated, log_p([0.5, 0.5]))


def test_a_class_that_content_free_texts_never_predict_stays_finite() -> None:
    calibrated = contextual_calibration(log_p([0.5, 0.5]), log_p([1.0, 0.0]))
    assert torch.isfinite(calibrated[0, 1]) and calibrated.argmax() == 1


def test_calibration_without_content_free_texts_is_refused() -> None:
    scores = log_p([0.5, 0.5])
    with pytest.raises(BadData, match="content-free"):
        contextual_calibration(scores, scores[:0])
