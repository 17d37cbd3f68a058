"""The most likely tokens are those of a full sort, with the softmax's probabilities."""

import pytest
import torch

from cutaway.methods.shortcut.maths.lens import final_distribution, layer_predictions
from cutaway.methods.shortcut.maths.top_tokens import top_tokens


@pytest.mark.parametrize("vocab", [4, 64, 640, 704, 1500])
def test_top_tokens_are_those_of_a_full_sort(vocab) -> None:
    # Vocabularies below, at and above the size from which blocks are searched, with a rest or not.
    logits = 3 * torch.randn(50, vocab, generator=torch.Generator().manual_seed(vocab))
    logits[0, -1] = 99.0
    ids, probs = top_tokens(logits, layer_predictions(logits, final_distribution(logits)))
    expected = logits.softmax(-1).topk(min(10, vocab))
    assert torch.equal(ids, expected.indices)
    torch.testing.assert_close(probs, expected.values, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("vocab", [40, 2000])
def test_the_first_of_equal_tokens_is_the_prediction(vocab) -> None:
    logits = torch.zeros(3, vocab)
    predicted = layer_predictions(logits, final_distribution(logits))
    ids, probs = top_tokens(logits, predicted)
    assert torch.equal(ids[:, 0], predicted.guess)
    assert ids.unique(dim=1).shape == (3, 10)
    torch.testing.assert_close(probs, torch.full((3, 10), 1 / vocab))
