import json
import sys
import time

import pytest

from cutaway.app import live, live_choices
from cutaway.app import live_process as helper
from tests.app.conftest import texts
from tests.app.test_live_choices import write_maps
from tests.studies.live.test_figures import EXIT, LENS, PROBE, WORDS

ANSWER = {
    "lens": {**LENS, "kinds": ["id"], "total": 2, "shown": 2},
    "exit": {**EXIT, "lambdas": [0.5, 0.9], "kinds": {
        "id": {**EXIT["kinds"]["id"],
               "stops": {"0.50": [2, 1], "0.90": [2, 2]},
               "kept": {"0.50": [True, False], "0.90": [True, True]}}}},
    "words": {**WORDS, "cut": 0},
    "probe": {**PROBE, "command": "cutaway probe --model m"},
}  # fmt: skip
READY = {"name": "m", "kind": "causal", "layers": 2, "width": 8, "parameters": 1000}
SCRIPT = """
import json, sys
told = json.loads(sys.argv[1])
def say(m): print(json.dumps(m), flush=True)
if "fatal" in told: say(told); sys.exit(2)
say({"ready": told["ready"]})
for line in sys.stdin:
    asked = json.loads(line)
    for name in ("answer", "errors"):
        for part, value in told[name].items():
            kind = "value" if name == "answer" else "error"
            say({"id": asked["id"], "part": part, kind: value})
    say({"id": asked["id"], "over": True, "seconds": 1.5})
"""


@pytest.fixture
def model(monkeypatch):
    """A helper that gives canned answers: `model(answer={...}, errors={...})`."""

    def use(answer=ANSWER, errors=None, **other) -> None:
        told = {"ready": READY, "answer": answer, "errors": errors or {}, **other}
        words = (sys.executable, "-c", SCRIPT, json.dumps(told))
        monkeypatch.setattr(helper, "LIVE_COMMAND", words)

    use()
    yield use
    helper.live_processes().close()


def look(page, text: str | None = None, **state):
    """The page after the button was pressed and the answer has come."""
    app = page("live", **state)
    assert not app.exception
    if text is not None:
        app.text_area(key="live-text").set_value(text)
    app.button(key="live-go").click().run()
    end = time.monotonic() + 60
    while any("…" in one.value for one in app.info):
        assert time.monotonic() < end
        time.sleep(0.1)
        app.run()
    assert not app.exception
    return app


def test_nothing_is_started_before_it_is_asked_for(runs, page, model) -> None:
    app = page("live")
    assert not app.exception and not helper.live_processes().running
    assert app.text_area(key="live-text").value == live.EXAMPLE


def test_a_sentence_gives_every_figure_with_command_and_data(runs, page, model) -> None:
    app = look(page)
    assert len(app.get("plotly_chart")) == len(app.get("download_button")) == 4
    assert "answered in 1" in texts(app).replace("\\", "")
    commands = [one.value for one in app.code]
    assert any(one.startswith("cutaway shortcut lens --model=smollm2-135m") for one in commands)
    assert all("python -m cutaway.studies.live smollm2-135m ask" in one for one in commands)
    assert any("cutaway probe --model m" in one for one in commands)


def test_another_sentence_is_asked_and_the_same_one_is_not_asked_again(runs, page, model) -> None:
    app = look(page)
    (one,) = helper.live_processes().running.values()
    app.run()
    assert one.requests == 1
    app.text_area(key="live-text").set_value("Something else.")
    app.button(key="live-go").click().run()
    assert one.requests == 2


def test_lambda_and_ways_of_drawing_need_no_new_request(runs, page, model) -> None:
    app = look(page)
    app.select_slider(key="live-lambda").set_value(0.5).run()
    assert not app.exception and "1.5 of 2 layers" in texts(app).replace("\\", "")
    (one,) = helper.live_processes().running.values()
    assert one.requests == 1


@pytest.mark.parametrize("text", ["", "  \n "])
def test_an_empty_sentence_is_a_friendly_line(runs, page, model, text) -> None:
    app = look(page, text)
    assert "Type a sentence" in app.info[0].value and not helper.live_processes().running


def test_a_long_sentence_says_what_was_cut(runs, page, model) -> None:
    lens = {**ANSWER["lens"], "total": 6001}
    model({**ANSWER, "lens": lens, "words": {**ANSWER["words"], "cut": 5500}})
    said = texts(look(page, "word " * 5000))
    assert "6,001 tokens" in said and "first 5,500 tokens" in said


def test_a_model_that_fails_is_explained_and_can_be_tried_again(runs, page, model) -> None:
    model(fatal="'x' breaks the law 'padding': <b>measured</b> 2")
    app = look(page)
    assert "breaks the law" in app.warning[0].value and "\\<b\\>" in app.warning[0].value
    model()
    app.button(key="live-retry").click().run()
    time.sleep(2)
    app.run()
    assert not app.warning


@pytest.mark.parametrize("part", ["maps", "lens", "words", "probe"])
def test_one_part_that_fails_leaves_the_others_in_place(runs, page, model, part) -> None:
    kept = {name: value for name, value in ANSWER.items() if name != part}
    model(kept, {part: "that [can't](http://evil) be"})
    app = look(page)
    assert len(app.get("plotly_chart")) >= 2
    assert "can't" in app.warning[0].value and "](http" not in app.warning[0].value


@pytest.mark.parametrize("name", ["/etc", "../..", "smollm2-135m+/etc"])
def test_a_model_outside_the_place_is_refused(runs, page, model, name, monkeypatch) -> None:
    monkeypatch.setattr(live_choices, "model_choices", lambda shelf: [name])
    app = look(page)
    assert "outside" in app.warning[0].value and not helper.live_processes().running


def test_the_choices_of_the_chosen_model_come_first(runs, page, model) -> None:
    write_maps(runs / "shortcut" / "aaaa", model="smollm2-135m")
    app = look(page)
    asked = [one.value for one in app.code if "--shortcut" in one.value]
    assert asked and "aaaa" in asked[0]


def test_a_conversation_is_sent_with_its_system_message(runs, page, model) -> None:
    long = {**ANSWER, "lens": {**ANSWER["lens"], "total": 80}}
    model(answer=long)
    app = look(page, **{"live-chat": True, "live-system": " Be brief. "})
    assert app.text_area(key="live-messages").value == live.CHAT_EXAMPLE
    assert "the grids show the last 2" in texts(app)
    lens = next(one.value for one in app.code if one.value.startswith("cutaway shortcut lens"))
    assert "--chat --system='Be brief.'" in lens and '"chat": true' in lens
