import sys
import time

import pytest

from cutaway.app import live_process as helper

# Answers each request with its own text, and `fatal` or silence where the model is called so.
SCRIPT = """
import json, sys, time
model = sys.argv[1]
def say(m): print(json.dumps(m), flush=True)
if model == "bad": say({"fatal": "no such model"}); sys.exit(2)
if model == "dies": print("out of memory", file=sys.stderr); sys.exit(9)
print("noise that is no JSON", flush=True)
say({"ready": {"name": model}})
for line in sys.stdin:
    asked = json.loads(line)
    say({"id": asked["id"], "part": "probe", "done": 1, "of": 4})
    say({"id": asked["id"], "part": "lens", "value": asked["text"]})
    say({"id": asked["id"], "part": "words", "error": "no words"})
    say({"id": asked["id"], "over": True, "seconds": 0.5})
    say({"id": 999, "over": True})
"""


@pytest.fixture
def some(monkeypatch):
    """Helpers whose process is a small script."""
    monkeypatch.setattr(helper, "LIVE_COMMAND", (sys.executable, "-c", SCRIPT))
    made = helper.LiveProcesses()
    yield made
    made.close()


def wait(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_parts_errors_and_progress_are_collected_by_request(some) -> None:
    one = some.get("m")
    number = one.send("me", {"text": "hello"})
    wait(lambda: one.answer(number).over)
    answer = one.answer(number)
    assert answer.parts == {"lens": "hello"} and answer.errors == {"words": "no words"}
    assert answer.progress == {"probe": 0.25} and answer.seconds == 0.5
    assert one.facts == {"name": "m"} and answer.stage == (2, True)


def test_one_process_serves_a_model_for_everybody(some) -> None:
    assert some.get("m") is some.get("m")
    assert some.get("m", download=True) is not some.get("m")


def test_only_so_many_models_are_held_and_the_longest_unused_goes(some) -> None:
    first, second = some.get("a"), some.get("b")
    first.send("me", {"text": "again"})
    third = some.get("c")
    assert first.alive and third.alive and not second.alive
    assert len(some.running) == helper.MAX_MODELS


def test_a_model_that_fails_says_why_and_is_tried_again(some) -> None:
    bad = some.get("bad")
    bad.send("me", {"text": "x"})
    wait(lambda: bad.fatal is not None)
    assert bad.fatal == "no such model" and not bad.alive
    assert some.get("bad") is not bad


def test_a_process_that_dies_leaves_its_last_words(some) -> None:
    gone = some.get("dies")
    wait(lambda: gone.fatal is not None)
    assert "out of memory" in gone.fatal and "has ended" in gone.fatal
    gone.send("me", {"text": "x"})
    assert not gone.alive


def test_old_answers_are_forgotten_not_kept_for_ever(some) -> None:
    one = some.get("m")
    numbers = [one.send("me", {"text": "x"}) for _ in range(helper.MAX_ANSWERS + 3)]
    wait(lambda: one.answer(numbers[-1]).over)
    assert len(one.answers) == helper.MAX_ANSWERS
    assert one.answer(numbers[0]).over and not one.answer(numbers[0]).parts


def test_closing_ends_the_processes(some) -> None:
    processes = [some.get(name).process for name in ("a", "b")]
    some.close()
    assert all(process.poll() is not None for process in processes)
