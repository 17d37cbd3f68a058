"""The specs of nextword and quad."""

import pytest

from cutaway.core.errors import BadSpec
from cutaway.core.spec import build_spec
from cutaway.methods.nextword.spec import FEATURES, TEXT_BASELINES, NextwordSpec, QuadSpec

NEXTWORD = {"model": "m", "data": "d"}


def test_words_are_split_at_commas_and_stripped() -> None:
    spec = build_spec(NextwordSpec, {**NEXTWORD, "class_words": "bad, good ,"})
    assert spec.class_words == ("bad", "good")
    listed = build_spec(NextwordSpec, {**NEXTWORD, "class_words": ["bad", "good,fine"]})
    assert listed.class_words == ("bad", "good", "fine")


@pytest.mark.parametrize("feature", [*FEATURES, "auto", "all"])
def test_every_feature_kind_is_accepted(feature: str) -> None:
    assert build_spec(NextwordSpec, {**NEXTWORD, "features": feature}).features == (feature,)


def test_baselines_can_be_switched_off() -> None:
    assert build_spec(NextwordSpec, NEXTWORD).baselines == TEXT_BASELINES
    assert build_spec(NextwordSpec, {**NEXTWORD, "baselines": "none"}).baselines == ()


REFUSED = {
    "no data": (NextwordSpec, {"model": "m"}, "Give --task or --data"),
    "an unknown feature": (NextwordSpec, {**NEXTWORD, "features": "phip"}, "Did you mean 'phi_p'"),
    "an unknown baseline": (NextwordSpec, {**NEXTWORD, "baselines": "bag"}, "Known: majority"),
    "more data than tasks": (
        NextwordSpec, {"model": "m", "task": "sst2", "data": "a,b"}, "data has 2 entries for 1"),
    "a template without a mask position": (
        NextwordSpec, {**NEXTWORD, "template": "{text} {mask}"}, "add --position mask"),
    "too few folds": (NextwordSpec, {**NEXTWORD, "folds": 1}, "folds"),
    "a test share of 1": (NextwordSpec, {**NEXTWORD, "test_share": 1.0}, "test_share"),
    "a width that is no multiple of 8": (QuadSpec, {"model": "m", "width": 20}, "width"),
    "an unknown objective": (QuadSpec, {"model": "m", "objective": "mse"}, "objective"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_value_is_refused_with_its_name(case: str) -> None:
    spec, options, message = REFUSED[case]
    with pytest.raises(BadSpec, match=message):
        build_spec(spec, options)


@pytest.mark.parametrize("spec", [NextwordSpec, QuadSpec])
def test_every_field_is_documented_in_plain_sentences(spec) -> None:
    for name, info in spec.model_fields.items():
        assert info.description and info.description.strip().endswith("."), name
