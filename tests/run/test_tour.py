import re

from cutaway.run import tour as tour_room
from cutaway.run.screen import Screen
from cutaway.run.tour import STOPS, tour
from cutaway.store.results import results
from tests.tiny import SENTENCES, tiny


def test_the_tour_takes_every_stop_writes_its_report_and_is_cached(tmp_path, monkeypatch):
    # Words that the tour's answers are made of have to be single tokens.
    words = [*SENTENCES, *["It was good and it was bad."] * 9]
    model = str(tiny("llama", tmp_path / "model", texts=words))
    monkeypatch.setattr(tour_room, "QUICK_ROWS", 120)
    out, quiet = tmp_path / "tour", Screen(quiet=True)
    story = tour(out, model=model, quick=True, screen=quiet)
    assert all(stop.question in story for stop in STOPS)
    assert len(results(out / "runs")) == len(STOPS)
    page = (out / "report.html").read_text()
    assert page.count("<section") >= len(STOPS)
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="https?:', page)
    monkeypatch.setattr("cutaway.run.sweep._forward", None)
    again = tour(out, model=model, quick=True, screen=quiet)
    assert again.splitlines()[0] == story.splitlines()[0]
