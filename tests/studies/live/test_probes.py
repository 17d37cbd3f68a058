import json

import pytest

from cutaway.core.spec import build_spec
from cutaway.models.load import open_model
from cutaway.studies.live.probes import ProbeCache
from cutaway.studies.live.request import LiveSpec
from cutaway.studies.live.serve import LiveSession, answer_request
from tests.tiny import tiny

TEXT = " the film is lovely , so i love it ."
ASK = {"prompt": " so i", "words": ("love", "hate")}


def ask(desk: LiveSession, **fields) -> dict[str, dict]:
    """The answer to a request: part -> its last message."""
    said: list[dict] = []
    answer_request(desk, {"id": 1, "client": "c", **fields}, said.append)
    assert said[-1]["over"] and all(message["id"] == 1 for message in said)
    json.dumps(said)
    return {message.get("part", "over"): message for message in said}


@pytest.mark.parametrize("pool", ["last", "mean"])
def test_a_probe_tells_happy_from_sad_and_says_what_it_was_fitted_on(toy, run, pool) -> None:
    benches, seen = ProbeCache(toy), []
    happy = build_spec(LiveSpec, {"text": TEXT, "run": str(run), "pool": pool})
    sad = happy.model_copy(update={"text": " the film is dull , so i hate it ."})
    told = benches.score(happy, lambda done, of: seen.append((done, of)))
    assert told["layers"] == list(range(toy.layers + 1)) and told["pool"] == pool
    assert told["n_train"] + told["n_val"] + told["n_test"] == 80
    assert all(sum(row) == pytest.approx(1) for row in told["said"])
    assert told["said"][-1][1] > 0.5 > benches.score(sad, lambda *_: None)["said"][-1][1]
    assert seen == [(i, toy.layers + 1) for i in range(toy.layers + 1)], "fitted only once"


def test_a_probe_of_another_model_is_refused(place, run) -> None:
    other = open_model(tiny("gpt2", place / "other"))
    told = ask(LiveSession(other, ProbeCache(other)), text=TEXT, run=str(run))
    assert "other weights" in told["probe"]["error"] and "value" in told["lens"]


def test_dropped_activations_are_missing_with_the_way_to_get_them(
    toy, run, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path))
    told = ask(LiveSession(toy, ProbeCache(toy)), text=TEXT, run=str(run))
    assert "no longer in the cache" in told["probe"]["error"]
    assert "cutaway probe" in told["probe"]["error"]
