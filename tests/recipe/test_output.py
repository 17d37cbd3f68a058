"""A run is done when the output at --out names it; another run's output there does not count."""

import json
from pathlib import Path

import pytest

import cutaway
from cutaway.core.errors import BadSpec
from cutaway.core.textset import TextSet
from cutaway.methods.graft import api as graft
from cutaway.methods.inject import fisher as fisher_room
from cutaway.methods.inject import recipe as inject_room
from cutaway.recipe.output import checkpoint_owner
from cutaway.store import files
from cutaway.store.artefacts import description_path, load_artefact, run_of_artefact
from tests.methods.inject.toys import SHORT, SUMS, spelling_toy
from tests.tiny import SENTENCES, tiny, toy_language

ONE = TextSet("one", tuple(toy_language(40)))
TWO = TextSet("two", tuple(toy_language(40, seed=3)))
TASK = {
    "task": "sst2", "data": "gen:sentiment?n=120", "template": "{text} It was",
    "words": ["bad", "good"], "shots": 8, "quiet": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def room(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("owned")


@pytest.fixture(scope="module")
def model(room) -> str:
    texts = (*SENTENCES, *["It was good and it was bad, red and great."] * 9)
    return str(tiny("llama", room / "llama", texts=texts))


@pytest.fixture(scope="module")
def tuned(room, model) -> str:
    out = str(room / "tuned")
    graft.finetune(
        model=model, **TASK, steps=4, every=2, batch=4, lr=0.05, out=out, runs=str(room / "tuning")
    )
    return out


def measure(model, runs, text, out):
    return cutaway.fisher(model=model, text=text, runs=runs, out=out, quiet=True)


def fit(model, runs, text, out):
    return cutaway.shortcut.fit(model=model, text=text, runs=runs, out=out, quiet=True)


@pytest.fixture(params=["fisher", "shortcut fit", "graft learn"])
def verb(request, model, tmp_path):
    """(which, out) -> the result of one of two requests."""
    runs = str(tmp_path / "runs")
    if request.param != "graft learn":
        call = measure if request.param == "fisher" else fit
        return lambda which, out: call(model, runs, (ONE, TWO)[which], out)
    tuned = request.getfixturevalue("tuned")
    return lambda which, out: graft.learn(
        base=model, tuned=tuned, **TASK, sparsity=1e-2, steps=2, seed=which, text="none",
        baselines="random", runs=runs, out=out,
    )  # fmt: skip


def test_the_output_of_another_run_is_replaced(verb, tmp_path) -> None:
    out = str(tmp_path / "f.safetensors")
    first = verb(0, out)
    told = json.loads(description_path(Path(out)).read_text())["sha256"]
    other = verb(1, out)
    assert run_of_artefact(Path(out)) == other.record.address != first.record.address
    again = verb(0, out)
    assert again.record.address == run_of_artefact(Path(out)) == first.record.address
    assert load_artefact(Path(out)).meta["run"] == first.record.address
    assert json.loads(description_path(Path(out)).read_text())["sha256"] == told
    assert again.summary["out"] == out


def test_an_artefact_in_the_run_is_copied_to_out_and_nothing_is_computed_again(
    verb, tmp_path, monkeypatch
) -> None:
    kept = verb(0, None)
    for module in ("inject.fisher", "shortcut.fit", "graft.learn"):
        monkeypatch.setattr(f"cutaway.methods.{module}.measure", lambda *_: pytest.fail("again"))
    out = tmp_path / "copy.safetensors"
    found = verb(0, str(out))
    own = next(kept.path.glob("*.safetensors"))
    assert found.summary["out"] == str(out)
    assert files.sha256_file(out) == files.sha256_file(own)
    assert run_of_artefact(out) == kept.record.address
    # Also the other way: the run's folder has none, and its file elsewhere is still its own.
    assert verb(0, str(out)).path == kept.path


def test_a_lost_artefact_is_made_again_where_it_was_asked_for(verb, tmp_path) -> None:
    out = tmp_path / "f.safetensors"
    first = verb(0, str(out))
    assert verb(0, None).summary["out"] == str(out), "it is still there"
    out.unlink()
    again = verb(0, None)
    assert again.record.address == first.record.address
    assert again.summary["out"] == next(again.path.glob("*.safetensors")).name
    assert load_artefact(next(again.path.glob("*.safetensors")))


def test_a_file_that_names_no_run_belongs_to_none(model, tmp_path) -> None:
    out = tmp_path / "f.safetensors"
    run = measure(model, str(tmp_path / "runs"), ONE, str(out))
    said = files.read_sealed(description_path(out))
    said["meta"].pop("run")
    files.write_sealed(description_path(out), {k: said[k] for k in ("meta", "sha256", "bytes")})
    assert run_of_artefact(out) is None
    measure(model, str(tmp_path / "runs"), ONE, str(out))
    assert run_of_artefact(out) == run.record.address
    assert run_of_artefact(tmp_path / "none.safetensors") is None


def test_quad_counts_only_its_own_checkpoint_as_done(model, tmp_path) -> None:
    def train(text, out):
        return cutaway.quad(
            model=model, text=text, steps=2, every=2, warmup=0, batch=4, quiet=True,
            out=out and str(out), runs=str(tmp_path / "runs"),
        )  # fmt: skip

    first, there = train(ONE, None), tmp_path / "one"
    found = train(ONE, there)
    assert checkpoint_owner(there, "quad") == first.record.address == found.record.address
    assert found.summary["checkpoint"] == str(there)
    cutaway.open(str(there), check=False)
    with pytest.raises(BadSpec, match=f"holds the checkpoint of another run, {first.path.name}"):
        train(TWO, there)
    other = train(TWO, tmp_path / "two")
    assert checkpoint_owner(tmp_path / "two", "quad") == other.record.address
    with pytest.raises(BadSpec, match="holds the checkpoint of another run"):
        train(ONE, tmp_path / "two")


def test_inject_counts_only_its_own_checkpoints_as_done(tmp_path, monkeypatch) -> None:
    toy, out = spelling_toy(tmp_path / "toy", "llama"), tmp_path / "out"

    def teach(seed, out):
        return cutaway.inject(
            model=toy, data=SUMS, retain=[ONE], regulariser="none", repeats=1, quiet=True,
            runs=str(tmp_path / "runs"), out=out and str(out), **(SHORT | {"lr": 1e-3 * seed}),
        )  # fmt: skip

    first = teach(1, out)
    cell = out / first.summary["cells"][0]
    other = teach(2, out)
    assert checkpoint_owner(cell, "inject") == other.record.address != first.record.address
    again = teach(1, out)
    assert checkpoint_owner(cell, "inject") == first.record.address == again.record.address
    kept = teach(3, None)
    monkeypatch.setattr(inject_room, "train_sweep", lambda *_: pytest.fail("trained again"))
    assert teach(3, tmp_path / "copy").summary["checkpoints"] == str(tmp_path / "copy")
    copied = tmp_path / "copy" / kept.summary["cells"][0]
    assert checkpoint_owner(copied, "inject") == kept.record.address


@pytest.mark.parametrize("said", ["", "[]", "{", '{"inject": 3}', '{"quad": "a"}'])
def test_a_checkpoint_note_without_a_run_of_the_verb_has_no_owner(said, tmp_path) -> None:
    (tmp_path / "cutaway.json").write_text(said)
    assert checkpoint_owner(tmp_path, "inject") is None


def test_the_files_of_runs_are_named_as_before() -> None:
    assert fisher_room.OUTPUT.name == "fisher.safetensors"
    assert inject_room.CHECKPOINT_FOLDER == "checkpoints"


def test_an_out_beside_a_users_json_is_refused_before_the_work(
    model, tuned, tmp_path, monkeypatch
) -> None:
    def too_late(*_: object) -> None:
        raise AssertionError("the work had begun")

    monkeypatch.setattr("cutaway.methods.inject.fisher.open_spec_model", too_late)
    monkeypatch.setattr("cutaway.methods.graft.learn.resolve", too_late)
    (tmp_path / "mine.json").write_text("{}")
    out = {"out": str(tmp_path / "mine.safetensors"), "runs": str(tmp_path / "runs")}
    with pytest.raises(BadSpec, match=r"mine\.json"):
        cutaway.fisher(model=model, text=ONE, quiet=True, **out)
    with pytest.raises(BadSpec, match=r"mine\.json"):
        graft.learn(base=model, tuned=tuned, **TASK, **out)
    assert (tmp_path / "mine.json").read_text() == "{}"
