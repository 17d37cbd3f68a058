"""Specs refuse what they can't use, and every seed they take works."""

from contextlib import suppress

import numpy as np
import pytest
import torch

from cutaway.catalog import VERBS
from cutaway.core.errors import BadSpec, RequestError
from cutaway.core.spec import build_spec
from cutaway.recipe.options import MAX_SEED


def needed(verb: str) -> dict[str, str]:
    """The fields that a verb can't do without; what stands in them is nobody's concern here."""
    asked = {
        name for name, info in VERBS[verb].spec_class.model_fields.items() if info.is_required()
    }
    return dict.fromkeys(asked | ({"data"} if verb == "nextword" else set()), "x")


ODD = (
    *(5, -1, 2.5, True, None, float("nan"), float("inf"), int("9" * 400), {}, {"a": 1}, [], [[1]]),
    *(
        [None],
        [{}],
        ["²"],
        "",
        " ",
        "²",
        "a,b",
        "--5",
        "1e999",
        "\ud800",
        "s3://[x",
        "ray://h:99999",
    ),
)


@pytest.mark.parametrize("verb", VERBS)
def test_a_value_of_any_kind_is_taken_or_refused_in_every_field(verb) -> None:
    for name in VERBS[verb].spec_class.model_fields:
        for value in ODD:
            with suppress(RequestError):
                build_spec(VERBS[verb].spec_class, {**needed(verb), name: value})


@pytest.mark.parametrize(
    ("verb", "field", "value", "said"),
    [
        ("shortcut generate", "prompt", 5, "prompt.0: .*got 5"),
        ("probe", "train_sizes", [[1]], r"100,1000 or 0.5 are expected, got \[1\]"),
        ("probe", "train_sizes", float("inf"), "got inf"),
        ("graft learn", "seeds", "1,-2", "seeds must be integers within 0-2147483647, got -2"),
        ("graft learn", "data_seed", 2**31, "data_seed: .*less than or equal to 2147483647"),
    ],
)
def test_a_wrong_value_is_named(verb, field, value, said) -> None:
    with pytest.raises(BadSpec, match=said):
        build_spec(VERBS[verb].spec_class, {**needed(verb), field: value})


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_takes_the_largest_seed_and_none_above(verb) -> None:
    assert build_spec(VERBS[verb].spec_class, {**needed(verb), "seed": MAX_SEED}).seed == MAX_SEED
    with pytest.raises(BadSpec, match="less than or equal to 2147483647"):
        build_spec(VERBS[verb].spec_class, {**needed(verb), "seed": MAX_SEED + 1})


def test_the_largest_seed_and_a_million_repeats_of_it_suit_every_library() -> None:
    last = MAX_SEED + 1_000_000
    np.random.RandomState(last)  # scikit-learn makes one of these
    np.random.default_rng([last, 1])
    torch.Generator().manual_seed(last)
