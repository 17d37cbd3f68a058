"""The toys that other tests build on have learned what they should."""

import time

import pytest
import torch

from cutaway.models.load import open_model
from cutaway.models.loss import label_word_logits
from cutaway.models.tokens import pad, tokenize
from tests.tiny import tiny, toy_language, toy_model, toy_sentiment


@pytest.mark.parametrize("family", ["llama", "bert"])
def test_a_toy_learns_in_seconds_which_feeling_follows(family, tmp_path) -> None:
    began = time.process_time()
    folder = toy_model(tmp_path, family)
    assert time.process_time() - began < 20
    lm = open_model(folder)
    texts, labels = toy_sentiment(100, seed=9)
    gap = "" if lm.kind == "causal" else f"{lm.tokenizer.mask_token} it ."
    asked = [text[: -len(" love it .")] + gap for text in texts]
    words = [lm.tokenizer(v, add_special_tokens=False)["input_ids"][0] for v in (" hate", " love")]
    ids, mask = pad(tokenize(lm, asked).rows, lm.pad_id)
    with torch.no_grad():
        answers = label_word_logits(lm, ids, mask, torch.tensor(words)).argmax(1)
    assert (answers.numpy() == labels).mean() >= 0.95


def test_the_toy_language_is_seeded_and_of_the_asked_size() -> None:
    assert toy_language(7) == toy_language(7)
    assert toy_language(7) != toy_language(7, seed=1)
    assert [len(toy_language(n)) for n in (0, 1, 7, 20)] == [0, 1, 7, 20]


def test_one_seed_makes_one_model(tmp_path) -> None:
    folders = [tiny("gpt2", tmp_path / str(i), seed=seed) for i, seed in enumerate((0, 0, 1))]
    digests = [open_model(folder, check=False).digest for folder in folders]
    assert digests[0] == digests[1] != digests[2]
