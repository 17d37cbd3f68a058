"""A drawing appears early and fills up; what a model can't do is left out with its reason."""

import pytest

from cutaway.console import Console
from cutaway.core.errors import RunError
from cutaway.recipe import life_cycle
from cutaway.studies.draw.plan import ProbeSet
from cutaway.studies.draw.progress import DrawingProgress
from cutaway.studies.draw.spec import DrawSpec
from cutaway.studies.draw.words import sentence_of


@pytest.fixture
def work(toy, folder, data, tmp_path):
    spec = DrawSpec(model=folder, runs=str(tmp_path), quick=True)
    context = life_cycle.Context(Console(quiet=True))
    made = DrawingProgress(spec, toy, context, sentence_of(toy, None))
    made.begin([ProbeSet(data, "mood", "repeats")])
    return made


def test_before_any_run_the_words_are_there_and_every_track_is_outlined(work, toy) -> None:
    drawing = work.drawing()
    assert all(drawing.words)
    assert not any(track.measured for track in drawing.tracks)
    assert all(track.command.startswith("cutaway ") for track in drawing.tracks)
    assert work.missing == ["linearity", "agreement", "mood", "fisher"]


def test_each_step_fills_its_track_alone(work) -> None:
    work.measure("mood")
    measured = {track.name for track in work.drawing().tracks if track.measured}
    assert measured == {"mood"}
    assert work.missing == ["linearity", "agreement", "fisher"]


def test_words_go_through_the_maps_once_they_are_fitted(work) -> None:
    assert work.maps is None
    work.measure("linearity")
    assert work.maps is not None
    assert work.words[-1].final


def test_without_maps_the_agreement_stays_outlined(work) -> None:
    work.measure("agreement")
    assert not {t.name for t in work.drawing().tracks if t.measured}


def test_a_step_that_fails_leaves_the_other_tracks(work, monkeypatch) -> None:
    def fail(*_, **__):
        raise RunError("no room for this")

    monkeypatch.setattr(life_cycle, "run", fail)
    work.measure("fisher")
    track = next(t for t in work.drawing().tracks if t.name == "fisher")
    assert not track.measured
    assert "fisher" not in work.missing
