"""Evaluation of the current weights: relative gain, agreement, language-model loss."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cutaway.core.textset import TextSet
from cutaway.methods.graft import evaluation
from cutaway.methods.graft.evaluation import (
    TaskOutputs,
    gain_and_agreement,
    heldout_token_rows,
    load_heldout_text,
    mean_lm_loss,
)


def outputs(*predictions: int) -> TaskOutputs:
    array = np.array(predictions)
    return TaskOutputs(np.eye(2)[array], array)


class Examples(SimpleNamespace):
    def __len__(self) -> int:
        return 4


def test_gain_is_relative_and_agreement_counts_equal_predictions() -> None:
    examples = Examples(task="binary")
    found = gain_and_agreement(examples, outputs(0, 1, 1, 1), outputs(0, 1, 0, 1), 0.7, 0.5, 0.9)
    assert found["relative_gain"] == pytest.approx(0.5)
    assert found["agreement"].mean == 0.75
    regression = Examples(task="regression")
    assert set(gain_and_agreement(regression, outputs(0), outputs(0), 0.7, 0.5, 0.9)) == {
        "relative_gain"
    }


def test_no_text_gives_no_loss(tiny_lm) -> None:
    lm = tiny_lm("llama")
    assert load_heldout_text(SimpleNamespace(text="none"), lm, {}) is None
    assert heldout_token_rows(lm, None) == ()
    assert mean_lm_loss(lm, (), 0) is None


def test_texts_are_cut_and_short_ones_left_out(tiny_lm) -> None:
    lm = tiny_lm("llama")
    texts = TextSet("t", (" the film is dull" * 200, "a"), None, "text")
    rows = heldout_token_rows(lm, texts)
    assert all(2 < len(row) <= min(evaluation.MAX_TEXT_TOKENS, lm.context) for row in rows)


def test_the_loss_of_a_causal_model_is_that_of_transformers(tiny_lm) -> None:
    lm = tiny_lm("llama")
    rows = ((1, 5, 6, 7, 8), (1, 9, 10))
    expected = []
    for row in rows:
        ids = torch.tensor([row])
        with torch.inference_mode():
            expected.append(float(lm.module(input_ids=ids, labels=ids).loss))
    assert mean_lm_loss(lm, rows, 0).mean == pytest.approx(np.mean(expected), rel=1e-5)


def test_masked_tokens_are_the_same_for_one_seed(tiny_lm) -> None:
    lm = tiny_lm("bert")
    rows = tuple(tuple(range(5, 25)) for _ in range(3))
    first, second, other = (mean_lm_loss(lm, rows, seed).mean for seed in (0, 0, 1))
    assert first == second != other
