"""Masks: exact sizes, exact tops, one order of ties, overlap."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import BadData, BadSpec
from cutaway.methods.graft.maths import select
from cutaway.methods.graft.maths.select import (
    Mask,
    intersection_size,
    mask_size,
    overlap_matrix,
    proportional_sizes,
    random_mask,
    scores_from,
    top_mask,
    union_mask,
)


def scores_of(seed: int, sizes: list[int], levels: int) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(seed)
    return {
        f"w{i}": torch.from_numpy(rng.integers(levels, size=n)).float() for i, n in enumerate(sizes)
    }


def flat_indices(mask: Mask, scores: dict[str, torch.Tensor]) -> list[int]:
    start, found = 0, []
    for name, value in scores.items():
        found += [start + int(p) for p in mask.indices.get(name, [])]
        start += value.numel()
    return found


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 1000),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    levels=st.integers(1, 50),
    share=st.floats(0.01, 1.0),
    bounds=st.fixed_dictionaries(
        {
            "SCORE_CHUNK": st.integers(1, 16),
            "ROW_SIZE": st.integers(1, 9),
            "SPARE_CAPACITY": st.integers(0, 20),
        }
    ),
)
def test_the_top_is_that_of_a_stable_sort(seed, sizes, levels, share, bounds) -> None:
    scores = scores_of(seed, sizes, levels)
    keep = max(1, round(share * sum(sizes)))
    whole = torch.cat(list(scores.values()))
    expected = sorted(torch.sort(whole, descending=True, stable=True).indices[:keep].tolist())
    # Smaller than these scores, so that every way through the code is taken.
    with patch.multiple(select, **bounds):
        mask = top_mask(list(scores), scores_from(scores), keep)
    assert mask.size == keep
    assert flat_indices(mask, scores) == expected


@pytest.mark.parametrize("place", [0, 700, 1023, 1024, 1099])
def test_scores_that_are_not_numbers_are_refused(place: int) -> None:
    scores = torch.arange(1100.0)
    scores[place] = float("nan")
    with pytest.raises(BadData, match="NaN"):
        top_mask(["w"], scores_from({"w": scores}), 1)


@pytest.mark.parametrize("keep", [0, 7])
def test_a_size_out_of_range_is_refused(keep: int) -> None:
    with pytest.raises(BadSpec, match="1 to 6"):
        top_mask(["w"], scores_from({"w": torch.zeros(6)}), keep)


def test_a_size_of_nothing_is_refused_however_many_scores_there_are() -> None:
    with pytest.raises(BadSpec, match="got 0"):
        top_mask(["w"], scores_from({"w": torch.zeros(20_000)}), 0)


@pytest.mark.parametrize("keep", [1, 7, 60, 99, 100])
def test_a_random_mask_has_its_exact_size_and_is_seeded(keep: int) -> None:
    sizes = {"a": 40, "b": 60}
    one, two = (random_mask(sizes, keep, rng=torch.Generator().manual_seed(3)) for _ in range(2))
    assert one.size == keep
    assert one.same(two)
    assert all(
        int(p.max()) < sizes[n] and len(p.unique()) == len(p) for n, p in one.indices.items()
    )


def test_a_random_mask_favours_no_weight() -> None:
    rng = torch.Generator().manual_seed(0)
    drawn = torch.zeros(20)
    for _ in range(2000):
        for places in random_mask({"a": 20}, 5, rng=rng).indices.values():
            drawn[places] += 1
    assert float((drawn / 2000 - 0.25).abs().max()) < 0.05


@given(sizes=st.lists(st.integers(1, 99), min_size=1, max_size=6), share=st.floats(0.01, 1))
def test_proportional_sizes_add_up_and_none_is_off_by_one(sizes, share) -> None:
    named = {str(i): n for i, n in enumerate(sizes)}
    keep = max(1, round(share * sum(sizes)))
    dealt = proportional_sizes(named, keep)
    assert sum(dealt.values()) == keep
    assert all(abs(dealt[n] - keep * named[n] / sum(sizes)) < 1 for n in named)


@pytest.mark.parametrize(("sparsity", "total"), [(1e-4, 85_054_464), (0.5, 3), (1.0, 7)])
def test_a_sparsity_is_a_rounded_share(sparsity: float, total: int) -> None:
    assert mask_size(sparsity, total) == round(sparsity * total)


def test_a_sparsity_that_keeps_nothing_names_the_least_that_does() -> None:
    with pytest.raises(BadSpec, match=r"1e-09.*1,000.*1\.0e-03"):
        mask_size(1e-9, 1000)


def test_overlap_is_the_share_of_the_second_masks_weights() -> None:
    one = Mask({"a": torch.tensor([0, 1, 2, 3])})
    two = Mask({"a": torch.tensor([3, 9]), "b": torch.tensor([0, 1])})
    assert intersection_size(one, two) == intersection_size(two, one) == 1
    assert overlap_matrix([one, two]).tolist() == [[1.0, 0.25], [0.25, 1.0]]
    assert union_mask([one, two]).size == 7
    three = Mask({"a": torch.tensor([3])})
    assert overlap_matrix([one, three]).tolist() == [[1.0, 1.0], [0.25, 1.0]]
