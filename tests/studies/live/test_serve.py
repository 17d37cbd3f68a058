import json

import pytest

from cutaway.models.load import open_model
from cutaway.studies.live.probes import ProbeCache
from cutaway.studies.live.serve import LiveSession, _newest_requests, answer_request
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


def test_a_broken_shortcut_is_said_and_the_layers_are_read_as_they_are(toy, maps_file, tmp_path):
    broken = tmp_path / "shortcut.safetensors"
    broken.write_bytes(maps_file.read_bytes()[:-8])
    broken.with_suffix(".json").write_bytes(maps_file.with_suffix(".json").read_bytes())
    told = ask(LiveSession(toy, ProbeCache(toy)), text=TEXT, shortcut=str(broken), **ASK)
    assert "bytes" in told["maps"]["error"]
    assert told["lens"]["value"]["kinds"] == ("id",) and list(told["words"]["value"]["probs"]) == [
        "id"
    ]


def test_a_shortcut_of_another_model_is_said(place, maps_file) -> None:
    other = open_model(tiny("gpt2", place / "another"))
    told = ask(LiveSession(other, ProbeCache(other)), text=TEXT, shortcut=str(maps_file))
    assert "was fitted on" in told["maps"]["error"] and "value" in told["lens"]


@pytest.mark.parametrize("fields", [{"text": " "}, {"text": "a", "tpo": 1}, {}, {"text": 3}])
def test_a_request_that_can_not_be_is_answered_with_what_is_wrong(toy, fields) -> None:
    assert ask(LiveSession(toy, ProbeCache(toy)), **fields)["lens"]["error"]


def test_of_one_clients_requests_only_the_newest_is_answered() -> None:
    import queue

    inbox: queue.Queue = queue.Queue()
    for number, client in ((1, "a"), (2, "b"), (3, "a")):
        inbox.put({"id": number, "client": client})
    said: list[dict] = []
    taken = [request["id"] for request in _newest_requests(inbox, said.append, idle=0.01)]
    assert taken == [2, 3] and said == [{"id": 1, "over": True, "replaced": True}]


def test_the_start_token_is_put_before_the_sentence_when_asked_for(place) -> None:
    lm = open_model(tiny("gpt2", place / "start"), check=False)
    session = LiveSession(lm, ProbeCache(lm))
    plain, added = (ask(session, text=TEXT, bos=bos)["lens"]["value"] for bos in ("auto", "add"))
    assert [*added["tokens"]] == [lm.tokenizer.bos_token, *plain["tokens"]]
