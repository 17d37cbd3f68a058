"""A task put to a model: the same answers however it is batched, words that are one token."""

import numpy as np
import pytest
import torch

from cutaway.core.errors import BadData, BadSpec
from cutaway.core.textset import TextSet
from cutaway.data.tasks import find_task
from cutaway.models.load import open_model
from cutaway.training import prompting as question
from cutaway.training.prompting import (
    PromptFormat,
    label_word_id,
    make_prompt_format,
    make_prompted_examples,
    predict_from_proba,
    predict_proba,
    prompt_logits,
)
from tests.tiny import SENTENCES, tiny, toy_model, toy_sentiment

HOW = {
    "llama": {"template": "{text} , so i", "words": ("hate", "love")},
    "bert": {"template": "{text} , so i {mask} it .", "words": ("hate", "love")},
}
TEXTS, LABELS = toy_sentiment(40, seed=3)
SET = TextSet(
    "toy", tuple(t.split(" , so")[0] for t in TEXTS), LABELS, "binary", ("negative", "positive")
)


@pytest.fixture(scope="module", params=list(HOW))
def toy(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("question") / request.param
    return open_model(str(toy_model(folder, request.param))), HOW[request.param]


def test_a_toy_that_knows_the_words_answers_right(toy) -> None:
    lm, how = toy
    asked = make_prompted_examples(lm, find_task("sst2"), SET, **how)
    found = predict_proba(lm, asked)
    assert found.sum(axis=1) == pytest.approx(np.ones(40))
    assert (predict_from_proba(asked, found) == LABELS).mean() > 0.9


def test_answers_do_not_depend_on_the_batch_or_the_order(toy, monkeypatch) -> None:
    lm, how = toy
    asked = make_prompted_examples(lm, find_task("sst2"), SET, **how)
    whole = predict_proba(lm, asked)
    monkeypatch.setattr(question, "EVAL_BATCH_TOKENS", 1)
    np.testing.assert_allclose(predict_proba(lm, asked), whole, atol=1e-5)
    order = np.random.default_rng(0).permutation(40)
    np.testing.assert_allclose(predict_proba(lm, asked.take(order)), whole[order], atol=1e-5)


def test_losses_are_those_of_the_answers(toy) -> None:
    lm, how = toy
    asked = make_prompted_examples(lm, find_task("sst2"), SET, **how)
    found = predict_proba(lm, asked)[np.arange(40), LABELS]
    with torch.no_grad():
        losses = asked.losses(range(40), prompt_logits(lm, asked, range(40)))
        np.testing.assert_allclose(losses, -np.log(found), atol=1e-4)


def test_a_long_text_loses_its_end_and_never_the_template(toy) -> None:
    lm, how = toy
    long = TextSet("long", (" the film is good" * 40,), np.array([1]), "binary", SET.classes)
    asked = make_prompted_examples(lm, find_task("sst2"), long, **how, max_tokens=24)
    assert asked.truncated == 1
    assert len(asked.rows[0]) <= 24
    end = lm.tokenizer.decode(asked.rows[0], skip_special_tokens=lm.kind == "causal")
    assert "so i" in end.replace("  ", " ")
    with pytest.raises(BadSpec, match="leave no room"):
        make_prompted_examples(lm, find_task("sst2"), long, **how, max_tokens=3)


def test_words_are_refused_when_they_are_not_single_different_tokens(toy) -> None:
    lm, how = toy
    for words, said in (
        (("hate", "lovehate"), "lovehate"),
        (("love", "love"), "not different"),
        (("love",), "expected 2"),
    ):
        with pytest.raises(BadSpec, match=said):
            make_prompted_examples(
                lm, find_task("sst2"), SET, template=how["template"], words=words
            )


def test_a_template_with_the_wrong_fields_is_refused(toy) -> None:
    lm, _ = toy
    with pytest.raises(BadSpec, match="expected exactly"):
        make_prompt_format(lm, find_task("sst2"), template="{text} {pair}", words=("hate", "love"))


def test_a_task_that_cannot_be_asked_says_what_to_give(toy) -> None:
    lm, _ = toy
    task = find_task("sst2").model_copy(update={"template": "", "autoregressive": None})
    with pytest.raises(BadSpec, match="--template"):
        make_prompt_format(lm, task)


def test_labels_that_are_not_the_tasks_are_refused(toy) -> None:
    lm, how = toy
    with pytest.raises(BadData, match="not the task's"):
        make_prompted_examples(
            lm, find_task("sst2"), TextSet("x", SET.texts, LABELS + 3, "multiclass"), **how
        )
    with pytest.raises(BadData, match="no labels"):
        make_prompted_examples(lm, find_task("sst2"), TextSet("x", SET.texts), **how)


def test_a_regression_answers_between_its_words(toy) -> None:
    lm, how = toy
    scores = TextSet("r", SET.texts, LABELS * 5.0, "regression")
    task = find_task("stsb")
    template = how["template"].replace("{text}", "{text} {pair}")
    paired = TextSet("r", SET.texts, scores.labels, "regression", pairs=SET.texts)
    asked = make_prompted_examples(lm, task, paired, template=template, words=how["words"])
    assert asked.targets.sum(1).tolist() == pytest.approx([1.0] * 40)
    found = predict_from_proba(asked, predict_proba(lm, asked))
    assert found.min() >= asked.bounds[0]
    assert found.max() <= asked.bounds[1]


@pytest.mark.parametrize("family", ["gpt2", "llama", "roberta", "opt", "bert"])
def test_a_word_is_the_token_it_is_in_its_place(tmp_path, family) -> None:
    texts = [*SENTENCES, *["it was great"] * 20]
    lm = open_model(str(tiny(family, tmp_path / family, texts=texts)), check=False)
    mask = " {mask}" if lm.kind == "masked" else ""
    token = label_word_id(lm, PromptFormat(f"{{text}} it was{mask}", ("great",), {}), "great")
    assert lm.tokenizer.decode([token]).strip() == "great"
    whole = lm.tokenizer("it it was great")["input_ids"]
    assert token in whole
