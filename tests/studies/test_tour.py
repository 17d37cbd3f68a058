import re
from html import escape

from cutaway.console import Console
from cutaway.store.results import results
from cutaway.studies import tour as tour_module
from cutaway.studies.tour import TOUR_STOPS, tour
from tests.tiny import SENTENCES, tiny


def test_the_tour_takes_every_stop_writes_its_report_and_is_cached(tmp_path, monkeypatch):
    # Words that the tour's answers are made of have to be single tokens.
    words = [*SENTENCES, *["It was good and it was bad."] * 9]
    words += ["All about business, cooking, science and sport."] * 9
    model = str(tiny("llama", tmp_path / "model", texts=words))
    monkeypatch.setattr(tour_module, "QUICK_ROWS", 120)
    out, quiet = tmp_path / "tour", Console(quiet=True)
    found = tour(out, model=model, quick=True, shared={"seed": 3}, console=quiet)
    story = found.story
    assert all(stop.question in story for stop in TOUR_STOPS)
    measured = len(TOUR_STOPS)
    assert len(results(out / "runs")) == measured
    page = (out / "report.html").read_text()
    assert page.count("<section") >= measured
    assert all(escape(stop.question) in page for stop in TOUR_STOPS), "the story heads the report"
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="https?:', page)
    monkeypatch.setattr("cutaway.extract.forward_pass._forward_batch", None)
    again = tour(out, model=model, quick=True, shared={"seed": 3}, console=quiet)
    assert again.addresses == found.addresses and len(found.addresses) == measured
    assert {record.seed for record in results(out / "runs")} == {3}
    assert again.story.splitlines()[0] == story.splitlines()[0]
