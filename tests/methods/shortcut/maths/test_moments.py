"""Cross-products: partial sums add up, resuming changes nothing, outliers cost no digits."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import BadData, Corrupt, Mismatch
from cutaway.methods.shortcut.maths.moments import (
    MomentAccumulator,
    Moments,
    layer_pairs,
    moments_bytes,
    moments_from_state_dict,
)


def some_layers(rows: int, width: int, layers: int, *, seed: int = 0) -> dict[int, torch.Tensor]:
    """Layers 0..layers with two coordinates a hundred times the rest, one far from 0."""
    rng = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, width, generator=rng)
    hidden[:, 1] *= 100
    hidden[:, 2] = 100 * hidden[:, 2] + 300
    states = {0: hidden}
    for layer in range(1, layers + 1):
        mix = torch.randn(width, width, generator=rng) / width**0.5
        states[layer] = states[layer - 1] + 0.3 * torch.tanh(states[layer - 1] @ mix)
    return states


def gather(states, pairs, *, batch: int = 7, **options) -> Moments:
    gatherer = MomentAccumulator(pairs, **options)
    for start in range(0, len(states[0]), batch):
        gatherer.add({layer: rows[start : start + batch] for layer, rows in states.items()})
    return gatherer.moments()


def same(one: Moments, other: Moments, tolerance: float = 1e-12) -> None:
    assert one.rows == other.rows
    for name, tensor in one.state_dict().items():
        torch.testing.assert_close(tensor, other.state_dict()[name], rtol=tolerance, atol=tolerance)


@settings(max_examples=20, deadline=None)
@given(cut=st.integers(1, 49), chunk=st.integers(1, 60), batch=st.integers(1, 50))
def test_two_halves_add_up_to_the_whole(cut: int, chunk: int, batch: int) -> None:
    states, pairs = some_layers(50, 5, 2), layer_pairs(2)
    halves = [{i: v[:cut] for i, v in states.items()}, {i: v[cut:] for i, v in states.items()}]
    options = {"cross": torch.float64, "chunk": chunk, "batch": batch}
    first, second = (gather(half, pairs, **options) for half in halves)
    whole = gather(states, pairs, **options)
    same(first + second, whole, 1e-9)
    same(second + first, whole, 1e-9)


def test_partial_sums_of_whole_chunks_equal_one_pass_in_float32_too() -> None:
    states, pairs = some_layers(64, 5, 2), layer_pairs(2)
    halves = [{i: v[:32] for i, v in states.items()}, {i: v[32:] for i, v in states.items()}]
    first, second = (gather(half, pairs, chunk=16, batch=8) for half in halves)
    same(first + second, gather(states, pairs, chunk=16, batch=8), 1e-12)


def test_asking_between_batches_changes_nothing() -> None:
    states, pairs = some_layers(30, 4, 1), layer_pairs(1)
    gatherer = MomentAccumulator(pairs, cross=torch.float64)
    for start in range(0, 30, 10):
        gatherer.add({i: v[start : start + 10] for i, v in states.items()})
        assert gatherer.moments().rows == start + 10
    same(gatherer.moments(), gather(states, pairs, cross=torch.float64), 1e-9)


def test_the_products_are_those_of_the_rows() -> None:
    states, pairs = some_layers(40, 4, 2), layer_pairs(2)
    moments = gather(states, pairs, chunk=16)
    for (source, target), gram in moments.grams.items():
        exact = states[source].double().T @ states[target].double()
        size = torch.outer(moments.squares[source].sqrt(), moments.squares[target].sqrt())
        assert float(((gram - exact) / size).abs().max()) < 1e-7


def test_a_far_off_mean_costs_no_digits_of_the_covariance() -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(512, 3, generator=rng)
    far = {0: x + 1000, 1: x.roll(1, 1) + 1000}
    moments = gather(far, [(0, 1)], chunk=128)
    centred = moments.grams[0, 1] - torch.outer(moments.sums[0], moments.sums[1]) / 512
    exact = {i: v.double() - v.double().mean(0) for i, v in far.items()}
    torch.testing.assert_close(centred, exact[0].T @ exact[1], rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("choice", "count"), [("all", 78), ("to-final", 12), ("final-and-next", 23)]
)
def test_twelve_blocks_have_78_pairs_12_to_the_last_layer_and_11_more_to_the_next(
    choice, count
) -> None:
    pairs = layer_pairs(12, choice)
    assert len(set(pairs)) == count
    assert all(source < target for source, target in pairs)


def test_the_memory_told_in_advance_covers_what_is_held() -> None:
    pairs = layer_pairs(3)
    moments = gather(some_layers(64, 16, 3), pairs, chunk=32)
    held = sum(t.numel() * t.element_size() for t in moments.state_dict().values())
    told = moments_bytes(pairs, 16, chunk=32)
    assert held < told < 3 * held


def test_named_points_survive_a_round_trip_beside_layers() -> None:
    states = {"0.attn.in": torch.randn(9, 3), "0.attn.out": torch.randn(9, 2), 4: torch.randn(9, 3)}
    gatherer = MomentAccumulator([("0.attn.in", "0.attn.out"), (4, "0.attn.out")])
    gatherer.add(states)
    moments = gatherer.moments()
    same(moments_from_state_dict(moments.state_dict()), moments, 0.0)
    assert moments_from_state_dict(moments.state_dict()).pairs == moments.pairs


def test_what_does_not_belong_together_is_refused() -> None:
    states = some_layers(8, 3, 2)
    with pytest.raises(Mismatch, match="don't add up"):
        gather(states, layer_pairs(2)) + gather(states, [(0, 2)])
    with pytest.raises(Mismatch, match="lacks the layers"):
        MomentAccumulator([(0, 9)]).add(states)
    with pytest.raises(Mismatch, match="same rows"):
        MomentAccumulator([(0, 1)]).add({0: torch.zeros(2, 3), 1: torch.zeros(3, 3)})
    with pytest.raises(BadData, match="No rows"):
        MomentAccumulator([(0, 1)]).moments()
    with pytest.raises(Corrupt, match="row count"):
        moments_from_state_dict({"sum/0": torch.zeros(3)})
