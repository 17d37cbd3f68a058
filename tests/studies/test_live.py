import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from cutaway.catalog import VERBS
from cutaway.core.errors import BadSpec, CutawayError
from cutaway.core.spec import build_spec
from cutaway.methods.probe.spec import ProbeSpec
from cutaway.methods.shortcut.lens import compute_lens, lens_request
from cutaway.methods.shortcut.maps import load_maps
from cutaway.methods.shortcut.maths.exit import exit_threshold
from cutaway.methods.shortcut.predictions import logits_fn
from cutaway.methods.shortcut.spec import FitSpec, LensSpec
from cutaway.models.load import open_model
from cutaway.models.read import collect_states
from cutaway.models.tokens import tokenize
from cutaway.recipe.life_cycle import run as run_verb
from cutaway.studies.live.layers import LAMBDAS, MAX_GRID_TOKENS, read_sentence
from cutaway.studies.live.probes import ProbeCache
from cutaway.studies.live.request import LiveSpec
from cutaway.studies.live.serve import LiveSession, _newest_requests, answer_request
from cutaway.studies.live.words import class_word_probabilities
from tests.tiny import tiny, toy_language, toy_model, toy_sentiment

TEXT = " the film is lovely , so i love it ."
ASK = {"prompt": " so i", "words": ("love", "hate")}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("live")


@pytest.fixture(scope="module", autouse=True)
def _home(place):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUTAWAY_HOME", str(place / "home"))
        yield


@pytest.fixture(autouse=True)
def _same_home(place, monkeypatch):
    """Each test has a home of its own; here they share the one of the runs above."""
    monkeypatch.setenv("CUTAWAY_HOME", str(place / "home"))


@pytest.fixture(scope="module")
def toy(place):
    return open_model(toy_model(place / "toy"))


@pytest.fixture(scope="module")
def masked(place):
    return open_model(toy_model(place / "masked", "bert"))


@pytest.fixture(scope="module")
def maps_file(place, toy) -> Path:
    (place / "text.txt").write_text("\n".join(toy_language(200)))
    spec = FitSpec(
        model=str(place / "toy"), text=str(place / "text.txt"), runs=str(place / "runs"),
        layers="to-final",
    )  # fmt: skip
    return run_verb(VERBS["shortcut fit"], spec).path / "shortcut.safetensors"


@pytest.fixture(scope="module")
def run(place, toy) -> Path:
    texts, labels = toy_sentiment(80)
    rows = [json.dumps({"text": t, "label": int(y)}) for t, y in zip(texts, labels, strict=True)]
    (place / "data.jsonl").write_text("\n".join(rows))
    spec = ProbeSpec(
        model=str(place / "toy"), data=str(place / "data.jsonl"), runs=str(place / "runs"),
        pool=("last", "mean"), repeats=1, baselines="none",
    )  # fmt: skip
    return run_verb(VERBS["probe"], spec).path


def ask(desk: LiveSession, **fields) -> dict[str, dict]:
    """The answer to a request: part -> its last message."""
    said: list[dict] = []
    answer_request(desk, {"id": 1, "client": "c", **fields}, said.append)
    assert said[-1]["over"] and all(message["id"] == 1 for message in said)
    json.dumps(said)
    return {message.get("part", "over"): message for message in said}


def test_the_grid_is_that_of_the_lens_command(toy, maps_file) -> None:
    maps = load_maps(maps_file, toy)
    mine = read_sentence(toy, maps, TEXT, 4).lens
    other = compute_lens(lens_request(toy, maps, LensSpec(text=TEXT, top=4)))
    assert mine.layers == other.layers and mine.kinds == other.kinds == ("id", "mat")
    assert mine.agree == other.agree
    for kind in mine.kinds:
        np.testing.assert_allclose(mine.probs[kind], other.probs[kind], atol=1e-4)


@pytest.mark.parametrize("kind", ["toy", "masked"])
def test_the_last_layer_always_agrees_with_the_model(kind, request) -> None:
    found = read_sentence(request.getfixturevalue(kind), None, TEXT, 3)
    assert all(found.lens.agree["id"][-1])
    told = found.plain_exit()["kinds"]["id"]
    assert all(all(kept) for lam, kept in told["kept"].items() if lam == "1.00")


def test_an_exit_stops_at_the_first_layer_above_the_threshold(toy) -> None:
    told = read_sentence(toy, None, TEXT, 1).plain_exit()
    gaps = np.array(told["kinds"]["id"]["gap"])
    for lam in LAMBDAS:
        enough = gaps > exit_threshold(lam, np.arange(gaps.shape[1]), float(gaps.shape[1]))
        enough[-1] = True
        # Gaps are rounded for the page: where one lies on the threshold either is right.
        same = enough.argmax(axis=0) + 1 == told["kinds"]["id"]["stops"][f"{lam:.2f}"]
        assert same.mean() > 0.9


def test_a_stricter_lambda_never_stops_earlier(toy) -> None:
    stops = read_sentence(toy, None, TEXT, 1).plain_exit()["kinds"]["id"]["stops"]
    rows = np.array([stops[f"{lam:.2f}"] for lam in LAMBDAS])
    assert (np.diff(rows, axis=0) >= 0).all()


def test_a_long_text_is_cut_and_its_true_length_told(toy) -> None:
    found = read_sentence(toy, None, "word " * 5000, 1).plain_lens()
    assert found["shown"] == MAX_GRID_TOKENS and found["total"] >= 5000


def test_words_at_the_last_layer_are_the_models_own_probabilities(toy) -> None:
    told = class_word_probabilities(
        toy, None, ("id",), build_spec(LiveSpec, {"text": " the film is fine ,", **ASK})
    )
    row = torch.tensor(tokenize(toy, [" the film is fine , so i"]).rows)
    logits = collect_states(toy, row, torch.ones_like(row, dtype=torch.bool), logits=True).logits
    chance = logits[0, -1].double().softmax(-1)
    for place, word in enumerate(ASK["words"]):
        ids = toy.tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
        assert told["probs"]["id"][-1][place] == pytest.approx(float(chance[ids[0]]), rel=1e-4)
    assert told["probs"]["id"][-1][0] > told["probs"]["id"][-1][1], "fine things are loved"
    assert len(told["probs"]["id"]) == toy.layers + 1


def test_masked_models_answer_at_the_mask(masked) -> None:
    spec = build_spec(LiveSpec, {"text": "the film is dull , so i", "words": ("love", "hate")})
    told = class_word_probabilities(masked, None, ("id",), spec)
    assert "[MASK]" in told["asked"]
    head = logits_fn(masked)
    ids = torch.tensor([masked.tokenizer(told["asked"], add_special_tokens=False)["input_ids"]])
    seen = collect_states(masked, ids, torch.ones_like(ids, dtype=torch.bool)).layers[masked.layers]
    place = ids[0].tolist().index(masked.tokenizer.mask_token_id)
    chance = head(seen[0, place][None]).double().softmax(-1)[0]
    word = masked.tokenizer("love", add_special_tokens=False)["input_ids"][0]
    assert told["probs"]["id"][-1][0] == pytest.approx(float(chance[word]), rel=1e-3)


@pytest.mark.parametrize("words", [(), ("love",), ("love", "love"), ("love", "qqqqzzzz")])
def test_words_that_can_not_be_told_apart_are_refused(toy, words) -> None:
    with pytest.raises(CutawayError):
        class_word_probabilities(
            toy, None, ("id",), build_spec(LiveSpec, {"text": TEXT, "words": words})
        )


def test_tasks_about_pairs_are_refused_with_the_reason(toy) -> None:
    with pytest.raises(BadSpec, match="two texts"):
        class_word_probabilities(
            toy, None, ("id",), build_spec(LiveSpec, {"text": TEXT, "task": "mnli"})
        )


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


def start(model: str, **options) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "cutaway.studies.live", model], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **options,
    )  # fmt: skip


@pytest.mark.slow
def test_the_process_speaks_json_lines_and_ends_with_its_pipe(place, toy) -> None:
    process = start(str(place / "toy"))
    process.stdin.write("no json\n[1]\n" + json.dumps({"id": 7, "text": TEXT}) + "\n")
    process.stdin.flush()
    said = []
    while not said or not said[-1].get("over"):
        said.append(json.loads(process.stdout.readline()))
    assert said[0]["ready"]["layers"] == 3
    assert [m.get("part") for m in said[1:]] == ["lens", "exit", None]
    process.stdin.close()
    assert process.wait(timeout=20) == 0


@pytest.mark.slow
def test_a_model_that_is_not_there_is_the_last_thing_it_says(tmp_path) -> None:
    process = start(str(tmp_path / "nothing"))
    assert "no folder" in json.loads(process.stdout.readline())["fatal"]
    assert process.wait(timeout=20) == 2
