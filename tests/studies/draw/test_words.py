"""The word of each layer is the logit lens of that layer, and the last one is the model's own."""

import pytest
import torch

from cutaway.core.errors import BadData
from cutaway.studies.draw.words import layer_words, sentence_of
from tests.tiny import SENTENCES


def test_the_last_word_is_the_one_that_the_model_predicts(toy) -> None:
    text = SENTENCES[0]
    words = layer_words(toy, None, text)
    ids = toy.tokenizer(text, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        expected = int(toy.module(ids).logits[0, -1].argmax())
    assert words[-1].text.strip() == toy.tokenizer.decode([expected]).strip()
    assert words[-1].final
    assert len(words) == toy.layers + 1
    assert all(0 < word.probability <= 1 for word in words)


def test_a_masked_model_predicts_the_masked_word(masked) -> None:
    text = sentence_of(masked, "The quick {mask} fox jumps.")
    assert masked.tokenizer.mask_token in text
    words = layer_words(masked, None, text)
    ids = masked.tokenizer(text, return_tensors="pt")["input_ids"]
    place = ids[0].tolist().index(masked.tokenizer.mask_token_id)
    with torch.inference_mode():
        expected = int(masked.module(ids).logits[0, place].argmax())
    assert words[-1].text.strip() == masked.tokenizer.decode([expected]).strip()


def test_a_masked_model_gets_a_mask_at_the_end_if_none_is_given(masked) -> None:
    assert sentence_of(masked, "The fox").endswith(masked.tokenizer.mask_token)
    assert sentence_of(masked, None).count(masked.tokenizer.mask_token) == 1


@pytest.mark.parametrize(
    "text", ["a", "word " * 500, "\u0645\u0631\u062d\u0628\u0627", "\U0001f600 <b>&"]
)
def test_any_text_with_tokens_is_read(toy, text) -> None:
    assert len(layer_words(toy, None, sentence_of(toy, text))) == toy.layers + 1


def test_an_empty_sentence_is_refused(toy) -> None:
    with pytest.raises(BadData, match="empty"):
        sentence_of(toy, " \n")
