"""The tokens with the largest effect on each class, with examples."""

import numpy as np
import torch

from cutaway.methods.nextword.maths.tokens import example_rows, top_tokens


def test_top_tokens_raise_the_score_of_their_class() -> None:
    weights = torch.tensor([[3.0, -2.0, 0.0, 5.0]])
    std = torch.tensor([1.0, 1.0, 1.0, 0.1])
    top = top_tokens(weights, std, classes=2, most=2)
    assert [(one.label, one.column) for one in top] == [(0, 1), (1, 0), (1, 3)]
    assert [one.weight for one in top] == [2.0, 3.0, 5.0]
    assert [one.effect for one in top] == [2.0, 3.0, 0.5]


def test_with_several_classes_each_has_its_own_row_of_weights() -> None:
    weights = torch.tensor([[1.0, 0.0], [-1.0, 2.0], [-3.0, -1.0]])
    top = top_tokens(weights, torch.ones(2), classes=3, most=5)
    assert [(one.label, one.column) for one in top] == [(0, 0), (1, 1)]


def test_no_top_tokens_are_listed_when_none_are_wanted() -> None:
    assert top_tokens(torch.ones(1, 3), torch.ones(3), classes=2, most=0) == []


def test_examples_are_the_rows_of_the_class_with_the_largest_values() -> None:
    values, rows = torch.tensor([0.1, 0.9, 0.5, 0.7]), np.array([10, 12, 13, 17])
    of_class = np.array([True, False, True, True])
    assert example_rows(values, rows, of_class) == [17, 13]
    assert example_rows(values, rows, of_class, most=1) == [17]
    assert example_rows(values, rows, ~of_class) == [12], "a class with fewer rows"
