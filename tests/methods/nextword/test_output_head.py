"""The output layer of a model, tokens as text, answer positions and templates."""

import numpy as np
import pytest
import torch

from cutaway.core.errors import BadSpec
from cutaway.core.textset import TextSet
from cutaway.methods.nextword.output_head import (
    answer_position,
    fill_task_template,
    make_encoder,
    make_output_head,
    token_text,
)
from tests.methods.nextword.toys import TEXTS

PAIRS = TextSet(
    "pairs", ("a dog", "a cat"), np.array([0, 1]), "binary", ("no", "yes"), pairs=("x", "y")
)


def test_tokens_have_their_leading_space(toy) -> None:
    ids = toy.tokenizer(" love", add_special_tokens=False)["input_ids"]
    assert token_text(toy, ids[-1]).endswith("love")


def test_the_end_of_a_template_is_separate_if_it_has_the_mask() -> None:
    texts, tail = fill_task_template(TEXTS.take([0]), "{text} It was {mask}.", "[MASK]", {})
    assert tail == " It was [MASK]." and texts.texts[0] == TEXTS.texts[0]
    front, nothing = fill_task_template(TEXTS.take([0]), "{mask}: {text}", "[MASK]", {})
    assert nothing == "" and front.texts[0].startswith("[MASK]: ")


def test_a_template_of_pairs_is_filled_with_both_texts() -> None:
    texts, end = fill_task_template(PAIRS, "{text} | {pair} : {mask}", "[MASK]", {})
    assert texts.texts == ("a dog | x", "a cat | y") and texts.pairs is None
    assert end == " : [MASK]"


@pytest.mark.parametrize("template", ["{text}", "{mask}", "{text} {mask} {other}"])
def test_a_template_with_other_fields_is_refused(template: str) -> None:
    with pytest.raises(BadSpec, match="Give --template"):
        fill_task_template(TEXTS.take([0]), template, "[MASK]", {})


def test_the_answer_is_at_the_last_token_or_at_cls_by_default(tiny_lm) -> None:
    causal, masked = tiny_lm("gpt2"), tiny_lm("bert")
    assert answer_position(causal, "auto") == "last" == answer_position(causal, "last")
    assert answer_position(masked, "auto") == "cls" and answer_position(masked, "mask") == "mask"
    for position in ("cls", "mask"):
        with pytest.raises(BadSpec, match="is causal: leave it out"):
            answer_position(causal, position)


def test_an_unknown_word_has_no_tokens(tiny_lm) -> None:
    lm = tiny_lm("bert")
    encode = make_encoder(lm)
    assert lm.tokenizer.cls_token_id not in encode("the")
    assert encode("\u4e2d\u6587\u0416") == [] or lm.tokenizer.unk_token_id is None


@pytest.mark.parametrize("family", ["gpt2", "gemma2"])
def test_the_output_head_gives_the_models_own_logits(family: str, tiny_lm) -> None:
    lm = tiny_lm(family)
    head = make_output_head(lm)
    f = torch.randn(5, lm.width, generator=torch.Generator().manual_seed(0)) * 20
    torch.testing.assert_close(head(f), lm.unembed(f).float(), rtol=1e-4, atol=1e-4)
    assert (head.transform is not None) == bool(lm.anatomy.logit_operations)
