"""Examples of texts: positions, masks and sampled targets."""

import numpy as np
import torch

from cutaway.core.textset import TextSet
from cutaway.methods.inject.examples import Examples, lm_examples, sample_targets


def test_short_texts_are_counted_and_left_out(tiny_lm) -> None:
    lm = tiny_lm("gpt2")
    texts = TextSet("t", ("The quick brown fox", "a", "", "No dog"))
    examples = lm_examples(lm, texts)
    assert examples.dropped + len(examples) == 4
    assert all(len(row) >= 2 for row in examples.rows)


def test_hidden_words_depend_on_the_text_and_the_seed_alone(tiny_lm, texts) -> None:
    lm = tiny_lm("bert")
    whole, turned = lm_examples(lm, texts), lm_examples(lm, texts.take(range(len(texts))[::-1]))
    assert whole.rows == turned.rows[::-1]
    assert whole.positions == turned.positions[::-1]
    assert lm_examples(lm, texts, seed=1).rows != whole.rows


def test_drawn_answers_follow_the_models_distribution() -> None:
    said = torch.log(torch.tensor([0.1, 0.6, 0.3]))[None, None].expand(1, 3000, 3)
    draws = [np.random.default_rng(0).random(3000)]
    counts = torch.bincount(sample_targets(said, draws)[0], minlength=3) / 3000
    torch.testing.assert_close(counts, torch.tensor([0.1, 0.6, 0.3]), atol=0.03, rtol=0)


def test_examples_taken_are_the_examples(tiny_lm, texts) -> None:
    whole = lm_examples(tiny_lm("llama"), texts)
    part = whole.take([2, 0])
    assert isinstance(part, Examples)
    assert part.rows == [whole.rows[2], whole.rows[0]]
    assert part.targets == [whole.targets[2], whole.targets[0]]
