"""Evaluation of the current weights: relative gain, agreement, language-model loss."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cutaway.core.textset import TextSet
from cutaway.methods.graft import task_evaluator as evaluation
from cutaway.methods.graft.task_evaluator import (
    TaskOutputs,
    gain_and_agreement,
    heldout_token_rows,
    load_heldout_text,
    mean_lm_loss,
)
from cutaway.training.task_model import make_plain_examples
from tests.training.tasks import task_split


def outputs(*predictions: int) -> TaskOutputs:
    array = np.array(predictions)
    return TaskOutputs(np.eye(2)[array], array)


def test_gain_is_relative_and_agreement_counts_equal_predictions(tiny_lm) -> None:
    examples = make_plain_examples(tiny_lm("gpt2"), task_split(), None)
    labels = examples.labels.astype(int)
    n = len(labels)
    base, half = 1 - labels, np.where(np.arange(n) < n // 2, labels, 1 - labels)
    found = gain_and_agreement(examples, outputs(*half), outputs(*base), outputs(*labels))
    assert found["relative_gain"].mean == pytest.approx((n // 2) / n)
    assert found["relative_gain"].low < 0.5 < found["relative_gain"].high
    assert found["agreement"].mean == pytest.approx((n // 2) / n)
    values = replace(examples, task="regression", metric="pearson", labels=np.linspace(0, 1, n))
    assert set(gain_and_agreement(values, *[outputs(*half)] * 3)) == {"relative_gain"}


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


def test_the_score_is_the_metric_with_the_loss_as_tie_break(request_of) -> None:
    evaluator = request_of(judge_examples=20).evaluator
    assert len(evaluator.validation) == 40
    examples = evaluator.model.examples.take(evaluator.validation)
    probabilities = evaluator.model.predict_proba(evaluator.validation)
    accuracy = float((probabilities.argmax(1) == examples.labels).mean())
    picked = probabilities[np.arange(40), examples.labels.astype(int)]
    assert evaluator.metric() == pytest.approx(accuracy)
    expected = accuracy + evaluation.LOSS_TIE_BREAK * float(np.log(picked).mean())
    assert evaluator.score() == pytest.approx(expected)


def test_gain_is_0_for_the_base_and_1_for_the_tuned_model(
    request_of,
) -> None:
    request = request_of()
    evaluator = request.evaluator
    base = evaluator.outputs()
    with request.pair.as_tuned():
        tuned = evaluator.outputs()
    scores = {k: evaluator.scores(v, base, tuned) for k, v in (("base", base), ("tuned", tuned))}
    assert scores["base"]["relative_gain"].mean == 0.0
    assert scores["tuned"]["relative_gain"].mean == 1.0
    assert scores["tuned"]["agreement"].mean == 1.0
    same = float((base.predictions == tuned.predictions).mean())
    assert scores["base"]["agreement"].mean == pytest.approx(same)
    assert int(evaluator.reliability(tuned).count.sum()) == len(evaluator.test)
