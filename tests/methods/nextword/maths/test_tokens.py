"""The tokens with the largest effect on each class, with examples."""

import numpy as np
import torch

from cutaway.methods.nextword.maths.tokens import top_tokens, with_examples


def test_top_tokens_raise_the_score_of_their_class() -> None:
    weights = torch.tensor([[3.0, -2.0, 0.0, 5.0]])
    std = torch.tensor([1.0, 1.0, 1.0, 0.1])
    top = top_tokens(weights, std, classes=2, most=2)
    assert [(label, column) for label, column, *_ in top] == [(0, 1), (1, 0), (1, 3)]
    assert [weight for _, _, weight, _ in top] == [2.0, 3.0, 5.0]
    assert [effect for *_, effect in top] == [2.0, 3.0, 0.5]


def test_with_several_classes_each_has_its_own_row_of_weights() -> None:
    weights = torch.tensor([[1.0, 0.0], [-1.0, 2.0], [-3.0, -1.0]])
    top = top_tokens(weights, torch.ones(2), classes=3, most=5)
    assert [(label, column) for label, column, *_ in top] == [(0, 0), (1, 1)]


def test_no_top_tokens_are_listed_when_none_are_wanted() -> None:
    assert top_tokens(torch.ones(1, 3), torch.ones(3), classes=2, most=0) == []


def test_examples_are_the_rows_of_the_class_with_the_largest_values() -> None:
    top = [(0, 1, 2.0, 2.0), (1, 0, 3.0, 3.0), (1, 3, 5.0, 0.5)]
    values = torch.tensor([[0.1, 0.9, 0.0], [0.5, 0.2, 0.0], [0.9, 0.3, 0.0]])
    tokens = with_examples(top, values, np.array([0, 1, 0, 1]), np.array([0, 2, 3]), each=1)
    assert [one.examples for one in tokens] == [(2,), (3,), (3,)]
    assert [(t.label, t.column, t.weight, t.effect) for t in tokens] == top


def test_a_class_with_fewer_rows_than_examples_has_fewer() -> None:
    tokens = with_examples([(0, 0, 1.0, 1.0)], torch.ones(2, 1), np.array([0, 1]), np.arange(2))
    assert tokens[0].examples == (0,)
