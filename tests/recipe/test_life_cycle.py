"""The life cycle calls a recipe's functions in order, saves once and finds what is done."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest

from cutaway.catalog import VERBS, Verb
from cutaway.console import Console
from cutaway.core.errors import BadSpec, Missing, NoRoom
from cutaway.recipe import life_cycle
from cutaway.recipe.cost import Estimate, SampleSize
from cutaway.recipe.life_cycle import Context, Outcome, Run
from cutaway.recipe.options import RunOptions, SamplesOption
from cutaway.recipe.output import ArtefactFile
from cutaway.recipe.result import ActionResult
from cutaway.store import results as store
from cutaway.store.artefacts import save_artefact
from cutaway.store.process_suffix import machine_id

VERB = Verb("toy", "toy.recipe", "ToySpec", "A toy.")


class ToySpec(RunOptions):
    """A toy."""

    value: float = 1.0
    """The value that is measured."""
    out: str | None = None
    """Where the artefact goes."""


@dataclass(frozen=True)
class ToyRequest:
    spec: ToySpec

    @property
    def identity(self) -> dict[str, Any]:
        return {"data": "digest"}


class Calls(list[str]):
    """The names of the functions that were called."""


def outcome(value: float, files: Any = None) -> Outcome:
    rows = pl.DataFrame({"metric": ["m"], "value": [value], "low": [None], "high": [None]})
    return Outcome(rows, {"verdict": [f"{value}"]}, {"zero": 0.0}, {}, {}, files or {})


@pytest.fixture
def calls(monkeypatch) -> Calls:
    """A recipe that is registered as `cutaway.methods.toy.recipe`."""
    called, module = Calls(), ModuleType("cutaway.methods.toy.recipe")

    def resolve(spec: ToySpec, context: Context) -> ToyRequest:
        called.append("resolve")
        return ToyRequest(spec)

    def measure(request: ToyRequest, run: Run) -> Outcome:
        called.append("measure")
        if "piece" not in run.progress.done():
            called.append("piece")
            run.progress.put("piece", [{"value": request.spec.value}])
        if request.spec.value < 0:
            raise RuntimeError("broken on the way")
        return outcome(run.progress.rows(["piece"])[0]["value"])

    module.resolve, module.measure = resolve, measure
    monkeypatch.setitem(sys.modules, "cutaway.methods.toy", ModuleType("cutaway.methods.toy"))
    monkeypatch.setitem(sys.modules, "cutaway.methods.toy.recipe", module)
    return called


def recipe() -> Any:
    return sys.modules["cutaway.methods.toy.recipe"]


@pytest.fixture
def spec(tmp_path) -> ToySpec:
    return ToySpec(runs=str(tmp_path / "runs"))


def test_a_run_is_measured_once_and_found_afterwards(calls, spec, capsys) -> None:
    first = life_cycle.run(VERB, spec)
    assert calls == ["resolve", "measure", "piece"]
    again = life_cycle.run(VERB, spec, Context(Console()))
    assert calls == ["resolve", "measure", "piece", "resolve"]
    assert first.record.address == again.record.address
    assert "already done" in capsys.readouterr().err
    assert first.rows["value"].to_list() == [1.0]


def test_pieces_that_a_killed_process_left_are_removed_when_the_run_is_found(calls, spec) -> None:
    done = life_cycle.run(VERB, spec).path
    left = done.parent / f"{done.name}.partial.tmp-{machine_id()}-999999999-{'0' * 32}"
    left.mkdir()
    life_cycle.run(VERB, spec)
    assert [path.name for path in done.parent.iterdir()] == [done.name]


def test_the_record_has_the_promised_fields(calls, spec) -> None:
    record = life_cycle.run(VERB, spec).record
    assert record.method == "toy"
    assert record.command == f"cutaway toy --runs={spec.runs}"
    assert record.baselines == {"zero": 0.0}
    assert record.seconds >= 0
    assert record.spec["value"] == 1.0


def test_an_address_depends_on_the_spec_and_on_what_it_names_but_not_on_how_it_runs(
    calls, spec, monkeypatch
) -> None:
    first = life_cycle.run(VERB, spec).record.address
    assert life_cycle.run(VERB, spec.model_copy(update={"device": "cpu"})).record.address == first
    assert life_cycle.run(VERB, spec.model_copy(update={"value": 2.0})).record.address != first
    monkeypatch.setattr(ToyRequest, "identity", {"data": "other"})
    assert life_cycle.run(VERB, spec).record.address != first


def test_a_run_that_broke_continues_with_its_finished_pieces(calls, spec) -> None:
    broken = spec.model_copy(update={"value": -1.0})
    for _ in range(2):
        with pytest.raises(RuntimeError, match="broken on the way"):
            life_cycle.run(VERB, broken)
    assert calls.count("measure") == 2
    assert calls.count("piece") == 1


def test_a_run_that_another_process_finished_meanwhile_is_used(calls, spec) -> None:
    done = life_cycle.run(VERB, spec).record

    def vanished(request: ToyRequest, run: Run) -> Outcome:
        raise Missing("pieces are gone")

    recipe().measure = vanished
    other = spec.model_copy(update={"seed": 1})
    with pytest.raises(Missing, match="pieces are gone"):
        life_cycle.run(VERB, other)
    finder, asked = store.find_record, []

    def late(*words: Any) -> Any:
        asked.append(words)
        return None if len(asked) == 1 else finder(*words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "find_record", late)
        assert life_cycle.run(VERB, spec).record.address == done.address


def test_a_verb_that_leaves_no_run_is_performed(calls, spec) -> None:
    def perform(request: ToyRequest, context: Context) -> ActionResult:
        return ActionResult(("done",), {"value": request.spec.value})

    recipe().perform = perform
    found = life_cycle.run(VERB, spec)
    assert found.plain() == {"value": 1.0, "verdict": ["done"]}
    assert not Path(spec.runs).exists()


def test_a_dry_run_estimates_and_is_refused_without_an_estimate(calls, spec) -> None:
    with pytest.raises(BadSpec, match="'cutaway toy' has no --dry-run"):
        life_cycle.estimate(VERB, spec)
    recipe().estimate = lambda request: [Estimate("1 step", request.spec.value, 2.0)]
    assert life_cycle.estimate(VERB, spec)[0].seconds == 1.0
    assert not Path(spec.runs).exists()


@pytest.fixture
def with_artefact(calls) -> ArtefactFile:
    """The toy writes an artefact that names its run."""
    import torch

    output = ArtefactFile("toy.safetensors")

    def measure(request: ToyRequest, run: Run) -> Outcome:
        calls.append("measure")
        path = output.path(request.spec, run.scratch)
        save_artefact(path, {"x": torch.ones(2)}, {"run": run.address})
        return outcome(1.0, output.files(request.spec, run.scratch))

    recipe().OUTPUT, recipe().measure = output, measure
    return output


def test_an_artefact_is_kept_in_the_run_or_at_out(calls, with_artefact, spec, tmp_path) -> None:
    kept = life_cycle.run(VERB, spec)
    assert (kept.path / "toy.safetensors").is_file()
    out = tmp_path / "mine.safetensors"
    copied = life_cycle.run(VERB, spec.model_copy(update={"out": str(out)}))
    assert calls.count("measure") == 1
    assert out.is_file()
    assert copied.summary["out"] == str(out)


def test_a_lost_artefact_is_made_again(calls, with_artefact, spec, tmp_path) -> None:
    out = tmp_path / "mine.safetensors"
    asked = spec.model_copy(update={"out": str(out)})
    life_cycle.run(VERB, asked)
    for path in (out, out.with_suffix(".json")):
        path.unlink()
    life_cycle.run(VERB, asked)
    assert calls.count("measure") == 2
    assert out.is_file()


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_opened(
    calls, with_artefact, spec, tmp_path
) -> None:
    (tmp_path / "mine.json").write_text("{}")
    with pytest.raises(BadSpec, match="Choose another name"):
        life_cycle.run(VERB, spec.model_copy(update={"out": str(tmp_path / "mine.safetensors")}))
    assert calls == []


@pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: verb.words)
def test_every_verb_of_the_catalog_is_a_recipe(verb) -> None:
    module = verb.load()
    assert callable(module.resolve)
    assert callable(getattr(module, "measure", None)) != callable(getattr(module, "perform", None))
    writes = "out" in verb.spec_class.model_fields and hasattr(module, "measure")
    assert writes == hasattr(module, "OUTPUT")


def test_a_launcher_is_refused_by_verbs_that_run_in_one_process(monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(BadSpec, match="'cutaway toy' runs in one process"):
        life_cycle.check_launcher(VERB, "local")
    life_cycle.check_launcher(replace(VERB, distributed=True), "local")


class SampledSpec(ToySpec, SamplesOption):
    """A toy that can keep samples."""


@pytest.fixture
def sampled(calls, spec) -> SampledSpec:
    """The toy has two pieces of two samples; the second breaks once if `value` is negative."""

    def measure(request: ToyRequest, run: Run) -> Outcome:
        calls.append("measure")
        for key in ("first", "second"):
            if key in run.progress.done():
                continue
            if run.samples is not None:
                run.samples.put(key, pl.DataFrame({"piece": [key] * 2, "row": [0, 1]}))
            if key == "second" and calls.count("measure") == 1 and request.spec.value < 0:
                raise RuntimeError("broken on the way")
            run.progress.put(key, [{"value": 1.0}])
        splits = pl.DataFrame({"set": ["toy"], "row": [0]})
        return replace(outcome(1.0), splits=splits)

    recipe().measure = measure
    recipe().sample_size = lambda request: SampleSize(4, 1000)
    return SampledSpec(runs=spec.runs, samples=True)


def test_samples_are_kept_only_when_asked_for_and_never_change_the_rows(calls, sampled) -> None:
    plain = life_cycle.run(VERB, sampled.model_copy(update={"samples": False}))
    with pytest.raises(Missing, match=r"has no samples. Make them with: cutaway toy .* --samples"):
        _ = plain.samples
    # A run without samples is not what was asked for.
    kept = life_cycle.run(VERB, sampled)
    assert calls.count("measure") == 2
    assert kept.samples.rows() == [("first", 0), ("first", 1), ("second", 0), ("second", 1)]
    assert kept.rows.equals(plain.rows)
    assert kept.splits.equals(plain.splits)


def test_a_run_with_samples_answers_a_request_without_them(calls, sampled) -> None:
    kept = life_cycle.run(VERB, sampled)
    found = life_cycle.run(VERB, sampled.model_copy(update={"samples": False}))
    assert found.record.address == kept.record.address
    assert calls.count("measure") == 1


def test_a_broken_run_neither_loses_nor_repeats_samples(calls, sampled) -> None:
    asked = sampled.model_copy(update={"value": -1.0})
    with pytest.raises(RuntimeError, match="broken on the way"):
        life_cycle.run(VERB, asked)
    assert life_cycle.run(VERB, asked).samples["row"].to_list() == [0, 1, 0, 1]
    assert not list(Path(asked.runs).rglob("*.partial"))


def test_changed_samples_make_the_run_again(calls, sampled) -> None:
    path = life_cycle.run(VERB, sampled).path / "samples.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert life_cycle.run(VERB, sampled).samples.height == 4
    assert calls.count("measure") == 2


def test_the_size_of_the_samples_is_printed_first_and_estimated(calls, sampled, capsys) -> None:
    recipe().estimate = lambda request: [Estimate("1 step", 1.0, 2.0)]
    assert "samples: about 4 rows, 0.0 MB" in life_cycle.estimate(VERB, sampled)[0].sentence()
    plain = sampled.model_copy(update={"samples": False})
    assert "samples" not in life_cycle.estimate(VERB, plain)[0].sentence()
    life_cycle.run(VERB, sampled, Context(Console()))
    assert "samples: about 4 rows, 0.0 MB." in capsys.readouterr().err
    recipe().sample_size = lambda request: SampleSize(10**12, 1000)
    with pytest.raises(NoRoom, match="needs 2000000000000000 bytes"):
        life_cycle.run(VERB, sampled.model_copy(update={"seed": 1}))
