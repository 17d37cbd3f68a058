"""The steps of a drawing: which runs, in which order, with which options."""

import pytest

from cutaway.studies.draw import plan
from cutaway.studies.draw.plan import ProbeSet
from cutaway.studies.draw.spec import TRACKS, DrawSpec

SETS = [ProbeSet("gen:tense", "gen:tense", "fixed"), ProbeSet("x.tsv", "x", "repeats")]


def words(lm, **options) -> list[str]:
    spec = DrawSpec(model="m", **options)
    sets = SETS if "property" in spec.tracks else []
    return [step.words for step in plan.steps(lm, spec, sets, {"model": "m"})]


def test_the_maps_come_first_and_each_set_is_a_probe(toy) -> None:
    assert words(toy) == ["shortcut fit", "shortcut eval", "probe", "probe", "fisher"]


@pytest.mark.parametrize(
    ("track", "expected"),
    [
        ("property", ["probe", "probe"]),
        ("agreement", ["shortcut fit", "shortcut eval"]),
        ("linearity", ["shortcut fit"]),
        ("fisher", ["fisher"]),
        ("skill", []),
        ("movement", []),
    ],
)
def test_a_track_needs_only_its_own_runs(toy, track, expected) -> None:
    assert words(toy, tracks=track) == expected
    assert track in TRACKS


def test_a_quantised_model_has_no_fisher(toy) -> None:
    assert "fisher" not in words(toy, quantise="int8")


def test_every_step_is_a_valid_spec_of_its_verb(toy) -> None:
    spec = DrawSpec(model="m")
    for step in plan.steps(toy, spec, SETS, {"model": "m", "runs": "r"}):
        assert step.spec().model in ("m", ("m",))
        assert not step.empty.measured


def test_quick_measures_on_fewer_rows(toy) -> None:
    full, quick = (
        plan.steps(toy, DrawSpec(model="m", quick=quick), SETS, {"model": "m"})
        for quick in (False, True)
    )
    for one, other in zip(full, quick, strict=True):
        assert one.words == other.words
        assert one.options["limit"] > other.options["limit"]


def test_a_set_in_parts_keeps_them(toy) -> None:
    made = plan.steps(toy, DrawSpec(model="m", tracks="property"), SETS, {"model": "m"})
    assert [step.options["protocol"] for step in made] == ["fixed", "repeats"]
    assert [step.empty.name for step in made] == ["tense", "x"]
