"""The precision of a pair: rounding is no movement, and values fit into the base's files."""

import pytest
import torch

from cutaway.methods.graft.pair_precision import PairPrecision, count_moved, pair_precision
from cutaway.methods.graft.spec import LearnSpec

BASE = torch.tensor([1.0, 1.001, 3.0, 0.1])
TUNED = torch.tensor([1.0001, 1.02, 3.0, 0.1])


@pytest.mark.parametrize(
    ("base", "tuned", "compared", "expected"),
    [
        ("float32", "float32", "float32", TUNED),
        ("float32", "bfloat16", "bfloat16", torch.tensor([1.0, 1.02, 3.0, 0.1])),
        ("float16", "float32", "float16", torch.tensor([1.0, 1.02, 3.0, 0.1])),
    ],
)
def test_weights_that_are_equal_when_rounded_keep_the_bases_value(
    base, tuned, compared, expected
) -> None:
    precision = PairPrecision(base, tuned, compared)
    first = BASE.to(getattr(torch, base)).float()
    expected = torch.where(expected == BASE, first, expected.to(getattr(torch, base)).float())
    assert torch.equal(precision.moved_values(first, TUNED), expected)
    assert precision.rounds == (compared != "float32")


def test_models_given_as_objects_have_the_precision_of_their_weights(tiny_lm) -> None:
    objects = {"one": tiny_lm("llama"), "two": tiny_lm("llama", dtype="bfloat16")}
    spec = LearnSpec(base="one", tuned="two", task="sst2")
    facts = pair_precision(spec, "float32", objects).facts()
    assert facts == {"base": "float32", "tuned": "bfloat16", "compared": "bfloat16"}


def test_weights_that_differ_are_counted() -> None:
    assert count_moved({"a": BASE, "b": BASE}, {"a": TUNED, "b": BASE}) == 2
