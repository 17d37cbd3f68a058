"""Sizes and seeds of generated text."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.core.errors import BadSpec
from cutaway.data.generator_options import (
    MAX_GENERATED_ROWS,
    GeneratorOptions,
    check_seed,
    make_rng,
)


@given(st.integers(1, MAX_GENERATED_ROWS))
def test_dev_is_a_fifth_and_test_two_fifths_of_train(n: int) -> None:
    sizes = GeneratorOptions(n=n).parts()
    assert list(sizes) == ["train", "dev", "test"]
    assert sizes == {"train": n, "dev": max(2, n // 5), "test": max(2, 2 * n // 5)}


def test_given_sizes_are_used() -> None:
    assert GeneratorOptions(n=5, dev=7, test=9).parts() == {"train": 5, "dev": 7, "test": 9}


@pytest.mark.parametrize(
    ("options", "part"),
    [({"n": 0}, "train"), ({"dev": 0}, "dev"), ({"test": MAX_GENERATED_ROWS + 1}, "test")],
)
def test_a_size_out_of_range_is_refused(options, part: str) -> None:
    with pytest.raises(BadSpec, match=f"{part} must have 1 to 1,000,000 rows"):
        GeneratorOptions(**options).parts()


def test_a_negative_seed_is_refused_and_the_same_seed_gives_the_same_numbers() -> None:
    with pytest.raises(BadSpec, match="seed must be 0 or more, got -1"):
        check_seed(-1)
    with pytest.raises(BadSpec):
        make_rng(-1)
    assert np.array_equal(make_rng(3).random(4), np.random.default_rng(3).random(4))
