"""The spec of probe."""

import pytest

from cutaway.core.errors import BadSpec
from cutaway.core.spec import build_spec
from cutaway.measure.baselines import BASELINES
from cutaway.methods.probe.maths.cell import classifier
from cutaway.methods.probe.maths.layer_mix import parse_layers
from cutaway.methods.probe.pieces import PIECE_KINDS
from cutaway.methods.probe.spec import PROBE_BASELINES, TEXT_BASELINES, ProbeSpec
from cutaway.pool import pooler

PROBE = {"model": "m", "data": "d"}


def test_one_name_and_a_list_and_a_line_with_commas_mean_the_same() -> None:
    texts = ("last,mean", ["last", "mean"], ["last,mean"])
    pools = {build_spec(ProbeSpec, {**PROBE, "pool": text}).pool for text in texts}
    assert pools == {("last", "mean")}
    assert build_spec(ProbeSpec, {**PROBE, "pool": "last"}).pool == ("last",)


def test_commas_inside_a_layer_mix_stay_together() -> None:
    spec = build_spec(ProbeSpec, {**PROBE, "layers": ["0,2", "concat:1,2"]})
    names = [mix.name for text in spec.layers for mix in parse_layers(text, 3)]
    assert names == ["0", "2", "concat:1,2"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [("none", ()), ("all", PROBE_BASELINES), ("bow,mdl", ("bow", "mdl"))],
)
def test_baselines_are_chosen_by_name_all_or_none(given: str, expected: tuple[str, ...]) -> None:
    assert build_spec(ProbeSpec, {**PROBE, "baselines": given}).baselines == expected


def test_every_baseline_can_be_measured() -> None:
    assert set(TEXT_BASELINES) <= set(BASELINES)
    assert set(PROBE_BASELINES) - set(TEXT_BASELINES) <= set(PIECE_KINDS)


def test_the_defaults_are_names_that_exist() -> None:
    spec = build_spec(ProbeSpec, PROBE)
    assert [pooler(name).name for name in spec.pool] == ["last"]
    assert [classifier(name).name for name in spec.classifier] == ["logistic"]
    assert len([mix for text in spec.layers for mix in parse_layers(text, 3)]) == 4


REFUSED = {
    "an unknown baseline": ({"baselines": "bag"}, "Unknown baseline 'bag'. Known: majority"),
    "an unknown protocol": ({"protocol": "loo"}, "protocol"),
    "no repeats": ({"repeats": 0}, "repeats"),
    "one fold": ({"folds": 1}, "folds"),
    "no shots": ({"shots": 0}, "shots"),
    "one token": ({"max_tokens": 1}, "max_tokens"),
    "no rows": ({"limit": 0}, "limit"),
    "an unknown task type": ({"as_": "ranking"}, "as"),
    "an unknown precision": ({"keep": "int8"}, "keep"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_value_is_refused_with_its_name(case: str) -> None:
    options, message = REFUSED[case]
    with pytest.raises(BadSpec, match=message):
        build_spec(ProbeSpec, {**PROBE, **options})


def test_every_field_is_documented_in_plain_sentences() -> None:
    for name, info in ProbeSpec.model_fields.items():
        assert info.description and info.description.strip().endswith((".", "...")), name
