"""Features of nextword: what the model reads, and what is computed from f."""

import numpy as np
import pytest
import torch

from cutaway.console import Console
from cutaway.core.textset import TextSet
from cutaway.extract.request import build_token_rows
from cutaway.methods.nextword.features import (
    features_for,
    model_handle_for,
    prompt_texts,
    prompts_for,
)
from cutaway.methods.nextword.spec import NextwordSpec
from cutaway.methods.nextword.task import nextword_tasks
from cutaway.models.hooks import collect_states
from cutaway.models.tokens import pad, tokenize
from tests.methods.nextword import toys
from tests.methods.nextword.toys import QUIET, TEXTS
from tests.tiny import FAMILIES

PROMPT = " It rained all day"
LONG = " ".join(f"town {i}" for i in range(60))
MOST = 24


def fed(lm, texts: TextSet, prompt: str, **options) -> list[list[int]]:
    spec = NextwordSpec(model=["m"], data=["d"], max_tokens=MOST, prompt_text=PROMPT, **options)
    read = prompt_texts(spec, lm, nextword_tasks(spec, {"d": texts})[0], prompt, texts)
    return build_token_rows(lm, read.texts, read.request).rows


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert"])
def test_a_long_text_is_read_to_the_same_end_with_the_prompt_and_without(family, tiny_lm) -> None:
    lm = tiny_lm(family)
    texts = TextSet("long", (LONG,) * 20, np.arange(20) % 2, "binary", ("a", "b"))
    special = set(lm.tokenizer.all_special_ids)
    plain = [i for i in fed(lm, texts, "")[0] if i not in special]
    with_prompt = [i for i in fed(lm, texts, PROMPT)[0] if i not in special]
    tail = lm.tokenizer(PROMPT, add_special_tokens=False)["input_ids"]
    assert with_prompt[-len(tail) :] == tail
    kept = with_prompt[: -len(tail)]
    assert len(kept) == len(plain) - len(tail)
    assert kept == plain[len(tail) :]


@pytest.mark.parametrize("template", ["{mask}: {text}", "{text} It was {mask}."])
def test_no_template_loses_its_mask_to_a_long_text(template, tiny_lm) -> None:
    lm = tiny_lm("bert")
    texts = TextSet("long", (LONG,) * 20, np.arange(20) % 2, "binary", ("a", "b"))
    for row in fed(lm, texts, "", position="mask", template=template):
        assert len(row) == MOST
        assert row.count(lm.tokenizer.mask_token_id) == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_f_meets_the_output_embedding_as_in_the_model_itself(family: str, tiny_lm) -> None:
    """Output(f) are the model's own logits, for every family: tied or not, bias or not, capped."""
    lm = tiny_lm(family)
    texts = TextSet(
        "t", ("A small town.", "It rained all day"), np.array([0, 1]), "binary", ("a", "b")
    )
    spec = NextwordSpec(model=["m"], data=["d"])
    question = nextword_tasks(spec.model_copy(update={"prompt": False}), {"d": _many(texts)})[0]
    page = features_for(spec, lm, question, "", QUIET)
    ids, mask = pad(tokenize(lm, page.prompted.texts.texts).rows, lm.pad_id)
    with torch.inference_mode():
        last = collect_states(lm, ids, mask, {lm.layers}).layers[lm.layers]
        own = lm.unembed(lm.final_norm(last)).float()
    at = mask.sum(1) - 1 if lm.kind == "causal" else torch.zeros(len(ids), dtype=torch.long)
    expected = own[torch.arange(len(ids)), at]
    torch.testing.assert_close(page.head(page.f), expected, rtol=1e-3, atol=1e-3)


def _many(texts: TextSet) -> TextSet:
    return texts.take([0, 1] * 10)


def test_the_prompt_is_the_last_thing_a_long_text_shows(toy) -> None:
    long = TEXTS.take([0] * 20)
    rows = TextSet(
        "long", tuple("the film is good " * 400 for _ in long.texts), np.arange(20) % 2,
        "binary", ("a", "b"),
    )  # fmt: skip
    spec = NextwordSpec(model=["m"], data=["d"], prompt_text=" , so i")
    question = nextword_tasks(spec, {"d": rows})[0]
    read = features_for(spec, toy, question, toys.PROMPT, QUIET).prompted
    fed = build_token_rows(toy, read.texts, read.request)
    tail = toy.tokenizer(toys.PROMPT, add_special_tokens=False)["input_ids"]
    assert all(row[-len(tail) :] == tail and len(row) <= toy.context for row in fed.rows)
    assert (fed.truncated > 0).all()


@pytest.fixture(scope="module")
def features(toy):
    spec = NextwordSpec(model=["m"], data=["d"], prompt_text=toys.PROMPT, seed=3)
    task = nextword_tasks(spec, {"d": TEXTS})[0]
    return features_for(spec, toy, task, toys.PROMPT, QUIET)


def test_all_features_are_functions_of_the_dense_distribution(features) -> None:
    p = torch.softmax(features.head(features.f), dim=1)
    torch.testing.assert_close(features.phi_p, p @ features.head.phi, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(features.logz, features.head(features.f).logsumexp(1))
    assert features.projection.shape == features.f.shape
    logits = features.head(features.f)[:, [3, 1]]
    torch.testing.assert_close(features.token_scores([3, 1], "logits"), logits)
    torch.testing.assert_close(
        features.token_scores([3, 1], "probs"), p[:, [3, 1]], rtol=1e-4, atol=1e-7
    )


def test_computed_columns_are_stored_and_not_computed_again(features, monkeypatch) -> None:
    first = features.phi_p, features.projection
    monkeypatch.setattr("cutaway.methods.nextword.features.expectations", None)
    assert torch.equal(features.phi_p, first[0]) and torch.equal(features.projection, first[1])


def test_other_texts_are_prompted_in_the_same_way(toy) -> None:
    spec = NextwordSpec(model=["m"], data=["d"], prompt_text=toys.PROMPT)
    task = nextword_tasks(spec, {"d": TEXTS})[0]
    other = features_for(spec, toy, task, toys.PROMPT, QUIET, texts=("N/A", "x"))
    own = features_for(spec, toy, task, toys.PROMPT, QUIET)
    assert other.prompted.request == own.prompted.request
    assert other.prompted.texts.texts == ("N/A", "x") and len(other.f) == 2


def test_a_template_replaces_all_prompts(toy_bert) -> None:
    options = {"model": ["m"], "data": ["d"], "prompt_text": toys.PROMPT}
    plain = NextwordSpec(**options)
    task = nextword_tasks(plain, {"d": TEXTS})[0]
    assert prompts_for(plain, toy_bert, task) == ("", toys.PROMPT)
    masked = NextwordSpec(**options, position="mask", template="{text} {mask}")
    task = nextword_tasks(masked, {"d": TEXTS})[0]
    assert prompts_for(masked, toy_bert, task) == (toys.PROMPT,)
    prompted = prompt_texts(masked, toy_bert, task, toys.PROMPT, TEXTS)
    assert prompted.prompt == "{text} {mask}" and prompted.position == "mask"


def test_workers_can_open_a_model_by_name_but_not_an_object(toy) -> None:
    by_name = NextwordSpec(model=[toy.name], data=["d"])
    handle = model_handle_for(by_name, toy)
    assert handle is not None and handle.digest == toy.digest
    assert model_handle_for(NextwordSpec(model=["toy#1234"], data=["d"]), toy) is None


def test_truncated_texts_are_reported_with_their_side(toy, capsys) -> None:
    rows = TextSet("long", (LONG,) * 20, np.arange(20) % 2, "binary", ("a", "b"))
    spec = NextwordSpec(model=["m"], data=["d"], max_tokens=MOST, prompt=False)
    task = nextword_tasks(spec, {"d": rows})[0]
    assert len(features_for(spec, toy, task, "", Console()).f) == 20
    assert "20 texts were too long: truncated on the left." in capsys.readouterr().err
