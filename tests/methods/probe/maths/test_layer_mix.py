"""Which layers, and how several become one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutaway.core.errors import BadSpec, Missing, UnknownName
from cutaway.methods.probe.maths.layer_mix import MIXES, LayerMix, mix_layers, parse_layers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all", [("0", (0,)), ("1", (1,)), ("2", (2,)), ("3", (3,))]),
        ("0, 2", [("0", (0,)), ("2", (2,))]),
        ("1-3", [("1", (1,)), ("2", (2,)), ("3", (3,))]),
        ("mean:all", [("mean:all", (0, 1, 2, 3))]),
        ("max:1,2", [("max:1,2", (1, 2))]),
        ("min: 0-2", [("min:0-2", (0, 1, 2))]),
        ("concat:3,1", [("concat:3,1", (3, 1))]),
        ("2;mean:all;2", [("2", (2,)), ("mean:all", (0, 1, 2, 3))]),
    ],
)
def test_a_text_names_its_layers(text, expected):
    assert [(m.name, m.layers) for m in parse_layers(text, 3)] == expected


@pytest.mark.parametrize(
    "text", ["4", "-1", "0,4", "mean:4", "concat:1-4", "3-1", "", "x", "1,,2", "one:2"]
)
def test_what_is_out_of_range_or_unreadable_names_the_range(text):
    with pytest.raises(BadSpec, match=r"0 \(embeddings\) to 3"):
        parse_layers(text, 3)


def test_an_unknown_mix_is_refused_with_a_hand():
    with pytest.raises(UnknownName, match="Did you mean 'mean'"):
        parse_layers("maen:all", 3)


def states() -> dict[int, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return {layer: torch.randn(5, 3, generator=draw) for layer in range(4)}


@pytest.mark.parametrize("how", MIXES)
def test_a_mix_of_one_layer_is_that_layer(how):
    torch.testing.assert_close(mix_layers(states(), LayerMix("2", (2,), how)), states()[2])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True))
def test_concat_keeps_every_feature_in_order_and_the_others_stay_between(chosen):
    whole = states()
    layers = [whole[k] for k in chosen]
    joined = mix_layers(whole, LayerMix("x", tuple(chosen), "concat"))
    torch.testing.assert_close(joined, torch.cat(layers, 1))
    low, middle, high = (
        mix_layers(whole, LayerMix("x", tuple(chosen), h)) for h in ("min", "mean", "max")
    )
    assert bool((low <= middle + 1e-6).all()) and bool((middle <= high + 1e-6).all())


def test_half_precision_layers_are_mixed_in_full():
    whole = {layer: value.half() for layer, value in states().items()}
    exact = torch.stack([whole[k].float() for k in range(4)]).mean(0)
    torch.testing.assert_close(mix_layers(whole, parse_layers("mean:all", 3)[0]), exact)


def test_a_layer_that_was_not_read_is_missed():
    with pytest.raises(Missing, match=r"layers \[7\]"):
        mix_layers(states(), LayerMix("mean:0,7", (0, 7), "mean"))
