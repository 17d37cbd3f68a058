"""Specs of shortcut: how values are parsed, and which are refused."""

import pytest

from cutaway.core.errors import BadSpec
from cutaway.core.spec import build_spec
from cutaway.methods.shortcut.spec import ExitSpec, FitSpec, GenerateSpec, LensSpec

FILE = {"model": "m", "shortcut": "maps.safetensors"}


def test_prompts_are_never_split_at_commas() -> None:
    for prompt in ("one, two", ["one, two"]):
        assert build_spec(GenerateSpec, {**FILE, "prompt": prompt}).prompt == ("one, two",)


@pytest.mark.parametrize(
    ("given", "layers"), [("6,2", (2, 6)), ([6, 2, 6], (2, 6)), (3, (3,)), ("", ())]
)
def test_exit_layers_are_sorted_numbers(given, layers) -> None:
    spec = build_spec(GenerateSpec, {**FILE, "prompt": "a", "exit_layers": given})
    assert spec.exit_layers == layers


@pytest.mark.parametrize(
    ("cls", "wrong"),
    [
        (GenerateSpec, {"prompt": "a", "exit_layers": "last"}),
        (GenerateSpec, {"prompt": "a", "mode": "fast"}),
        (ExitSpec, {"agreement": 1.0}),
        (ExitSpec, {"risk": 0}),
    ],
)
def test_impossible_values_are_refused(cls, wrong) -> None:
    with pytest.raises(BadSpec, match=next(name for name in wrong if name != "prompt")):
        build_spec(cls, {**FILE, **wrong})


def test_defaults_are_the_papers() -> None:
    spec = FitSpec(model="m")
    assert (spec.positions_per_text, spec.layers, spec.intercept) == (1, "all", False)
    assert LensSpec(text="t").kinds == ("id", "mat")
