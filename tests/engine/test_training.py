"""Trainings, masks and Fishers as pieces: the same table, the same files, wherever they run."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from safetensors.torch import load_file

import cutaway
from cutaway.catalog import VERBS
from cutaway.console import Console
from cutaway.core.errors import Mismatch, Missing, RunError
from cutaway.core.spec import address
from cutaway.core.textset import TextSet
from cutaway.engine import Resources
from cutaway.extract.model_handle import make_model_handle, training_resources
from cutaway.methods.graft import continual, learn
from cutaway.methods.inject import recipe
from cutaway.methods.inject.examples import lm_examples
from cutaway.methods.inject.fisher_sums import (
    fisher_batches,
    split_batches,
    sum_squared_gradients,
    sum_squared_gradients_on,
)
from cutaway.methods.inject.spec import FisherSpec
from cutaway.models.load import open_model
from cutaway.recipe.life_cycle import Context, warn_if_not_parallel
from cutaway.recipe.worker_pieces import WorkerTask, check_same_run, run_on_workers, runs_on_workers
from cutaway.store.progress import Progress
from tests.engine import work
from tests.methods.finetune.test_recipe import TASK
from tests.methods.probe.test_recipe import labelled
from tests.tiny import BAD, GOOD, SENTENCES, THINGS, tiny, toy_model

# Worker processes load torch; on a machine with other work that takes its time.
pytestmark = pytest.mark.timeout(600)
QUIET = Console(quiet=True)
PLAIN = {"regulariser": ["none", "l2sp"], "clash": False}


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> Path:
    """A model, a task with its rows, and the same model taught the task."""
    folder = tmp_path_factory.mktemp("pieces")
    toy_model(folder / "base", "llama", steps=60)
    rows = [(f" the {thing} is {word}", word in GOOD) for thing in THINGS for word in GOOD + BAD]
    lines = [f"{text}\t{int(label)}" for text, label in rows]
    (folder / "rows.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    for name in ("toy", "again"):
        (folder / f"{name}.toml").write_text(TASK.replace('name = "toy"', f'name = "{name}"'))
    cutaway.graft.finetune(
        model=str(folder / "base"), task=str(folder / "toy.toml"), data=str(folder / "rows.tsv"),
        out=str(folder / "tuned"), runs=str(folder / "runs"), shots=12, steps=20, every=10,
        optimizer="adamw", lr=5e-3, quiet=True,
    )  # fmt: skip
    return folder


def same(one: pl.DataFrame, other: pl.DataFrame) -> None:
    """The same table; workers have fewer threads, so last bits may differ."""
    assert_frame_equal(one, other, rel_tol=1e-4, abs_tol=1e-5)


def masks(toy: Path, folder: Path, engine: str, **options):
    return cutaway.graft.learn(
        base=str(toy / "base"), tuned=str(toy / "tuned"), task=str(toy / "toy.toml"),
        data=str(toy / "rows.tsv"), sparsity=[1e-3, 1e-2], seeds=[0, 1], steps=4, every=2,
        step_examples=8, shots=12, baselines=["random", "grad_movement"], text="none",
        slope_examples=8, judge_examples=16, runs=str(folder), engine=engine, quiet=True,
        **options,
    )  # fmt: skip


def test_masks_are_the_same_wherever_they_are_learned(toy, tmp_path, elsewhere):
    here, there = (masks(toy, tmp_path / e.replace(":", ""), e) for e in ("local", elsewhere))
    same(here.rows, there.rows)
    first, second = (load_file(r.path / "skill.safetensors") for r in (here, there))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_worker_opens_both_models_once_for_all_its_masks(toy, tmp_path, monkeypatch):
    opened, resolve = [], learn.resolve
    monkeypatch.setattr(learn, "resolve", lambda *a: opened.append(1) or resolve(*a))
    spec = build_learn(toy, tmp_path)
    request = resolve(spec, Context())
    search, size = request.search(QUIET), 40
    search.rank_by_gradients([size])
    masks = {
        which: {name: indices.numpy() for name, indices in mask.indices.items()}
        for which, mask in search.gradient_masks.items()
    }
    outputs = request.evaluator.outputs()
    worker = learn.MaskWorker(
        spec, {}, address(spec, **request.identity), tmp_path, outputs, outputs, masks,
        search.step_units,
    )  # fmt: skip
    jobs = [learn.MaskJob(kind, size, seed) for kind in ("learned", "random") for seed in (0, 1)]
    assert all(worker(job) for job in jobs)
    assert len(opened) == 1
    with pytest.raises(Mismatch, match="other weights or rows"):
        replace(worker, address="0" * 16)(jobs[0])


def build_learn(toy: Path, folder: Path):
    return learn.LearnSpec(
        base=str(toy / "base"), tuned=str(toy / "tuned"), task=str(toy / "toy.toml"),
        data=str(toy / "rows.tsv"), sparsity=(1e-3,), seeds=(0, 1), steps=2, every=2,
        step_examples=8, shots=12, baselines=("random",), text="none", slope_examples=8,
        judge_examples=16, runs=str(folder),
    )  # fmt: skip


def test_both_ways_of_a_course_are_the_same_elsewhere(toy, tmp_path):
    options = {
        "base": str(toy / "base"), "task": [str(toy / "toy.toml"), str(toy / "again.toml")],
        "data": [str(toy / "rows.tsv")] * 2, "shots": 12, "steps": 6, "every": 3, "mask_steps": 2,
        "step_examples": 8, "sparsity": 1e-2, "quiet": True,
    }  # fmt: skip
    here, there = (
        cutaway.graft.continual(**options, runs=str(tmp_path / name), engine=engine)
        for name, engine in (("here", "local"), ("there", "local:2"))
    )
    same(here.rows, there.rows)
    assert sorted(here.record.files) == sorted(there.record.files)
    assert set(continual.STRATEGY_RUNNERS) == {"sequential", "graft"}


def sweep(model: str, folder: Path, engine: str, **options):
    settings = {
        "model": model, "data": "gen:arithmetic?n=40,dev=10,test=20,digits=1", "retain": "docs",
        "retain_limit": 20, "regulariser": ["none", "ewc", "l2sp"], "strength": [1.0],
        "steps": 4, "every": 2, "batch": 4, "fisher_examples": 12, "beyond": [], "max_tokens": 24,
        "seed": 0, "quiet": True,
    }  # fmt: skip
    return cutaway.inject(**{**settings, "runs": str(folder), "engine": engine, **options})


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(tiny("llama", tmp_path_factory.mktemp("sweep") / "llama"))


def test_a_sweep_is_the_same_table_wherever_it_is_trained(model, tmp_path, elsewhere):
    here, there = (sweep(model, tmp_path / e.replace(":", ""), e) for e in ("local", elsewhere))
    same(here.rows, there.rows)
    assert here.record.address == there.record.address
    assert sorted(here.record.files) == sorted(there.record.files)


def test_a_killed_driver_of_a_sweep_goes_on_and_no_cell_is_doubled(model, tmp_path):
    """Killed with -9 when the first cell is kept: the second start trains only the others."""
    whole = sweep(model, tmp_path / "whole", "local", **PLAIN)
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    root = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, script, model, str(tmp_path / "runs")], timeout=500, text=True,
        capture_output=True, env={**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"},
    )  # fmt: skip
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    (kept,) = (tmp_path / "runs" / "inject").glob("*.partial")
    assert "none-0-seed0" in Progress(kept).done()
    trained, carry_out = [], recipe.train_cell
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe, "train_cell", lambda w, c, s: trained.append(c) or carry_out(w, c, s))
        again = sweep(model, tmp_path / "runs", "local", **PLAIN)
    assert [cell.name for cell in trained] == ["l2sp-1-seed0"]
    same(whole.rows, again.rows)


DRIVER = """
import os, signal, sys
from pathlib import Path
from cutaway.store.progress import Progress
from tests.engine.test_training import PLAIN, sweep

if __name__ == "__main__":
    put = Progress.put
    def put_then_die(self, key, rows, details=()):
        put(self, key, rows, details)
        if "seed" in key:
            os.kill(os.getpid(), signal.SIGKILL)
    Progress.put = put_then_die
    sweep(sys.argv[1], Path(sys.argv[2]), "local:1", **PLAIN)
"""


@pytest.fixture(scope="module")
def lm(model):
    return open_model(model, check=False)


@pytest.fixture(scope="module")
def examples(lm):
    texts = TextSet("few", tuple(f"{a} {b}" for a in SENTENCES for b in SENTENCES))
    return lm_examples(lm, texts, limit=24)


def door(lm, model):
    return make_model_handle(lm, FisherSpec(model=model, text="docs", device="cpu"))


@pytest.mark.parametrize("workers", [1, 2, 3, 50])
def test_parts_hold_every_example_once_in_the_batches_of_the_single_pass(lm, examples, workers):
    batches = fisher_batches(lm, examples, "batched")
    parts = list(split_batches(examples, batches, workers))
    assert len(parts) <= max(workers, 1)
    made = [[tuple(part.examples.rows[i]) for i in rows] for part in parts for rows in part.batches]
    assert made == [[tuple(examples.rows[i]) for i in batch.rows] for batch in batches]


@pytest.mark.parametrize("drawn", [False, True])
def test_a_fisher_in_parts_is_the_single_pass(lm, model, examples, elsewhere, drawn):
    """To float32: each part is a float32 sum, parts are added in float64."""
    asked = examples.with_sampled_targets(3) if drawn else examples
    one = sum_squared_gradients(lm, asked, console=QUIET)
    many = sum_squared_gradients_on(elsewhere, door(lm, model), lm, asked, console=QUIET)
    assert many.method == one.method
    for name, value in one.total.items():
        worst = float((many.total[name] - value).norm() / value.norm().clamp_min(1e-30))
        assert worst <= 1e-6, (name, worst)


def test_a_fisher_file_is_the_same_from_the_command(model, tmp_path):
    options = {"model": model, "text": "docs", "limit": 30, "max_tokens": 24, "quiet": True}
    here = cutaway.fisher(**options, runs=str(tmp_path / "here"))
    there = cutaway.fisher(**options, runs=str(tmp_path / "there"), engine="local:2")
    first, second = (load_file(r.path / "fisher.safetensors") for r in (here, there))
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, rtol=1e-4, atol=1e-12, msg=name)


def test_nextword_measures_on_the_engine_what_it_measures_here(tmp_path, elsewhere, monkeypatch):
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / "home"))
    options = {
        "model": str(toy_model(tmp_path / "toy", steps=20)), "data": labelled(40), "quiet": True,
        "features": ["f", "phi_p", "subset", "projection"], "subset_words": ["good", "bad", "the"],
        "repeats": 2, "baselines": ["majority", "bow"],
    }  # fmt: skip
    there = cutaway.nextword(**options, runs=str(tmp_path / "there"), engine=elsewhere)
    here = cutaway.nextword(**options, runs=str(tmp_path / "here"))
    same(here.rows, there.rows)
    assert set(there.rows["status"]) == {"done"}


def test_a_piece_that_fails_three_times_is_named_and_the_others_are_kept(elsewhere, tmp_path):
    kept, said = [], []

    class Loud(Console):
        def print(self, text: str) -> None:
            said.append(text)

    with pytest.raises(RunError, match=r"1 piece failed, the others are saved: sixth of 0 \(3 tri"):
        for piece, got in run_on_workers(
            elsewhere, work.sixth, [1, 0, 3], key=lambda n: f"sixth of {n}", needs=Resources(),
            kept=tmp_path, console=Loud(),
        ):  # fmt: skip
            kept.append((piece, got))
    assert sorted(kept) == [(1, 6), (3, 2)]
    assert any("ZeroDivisionError" in line for line in said)


def test_what_pieces_share_is_made_ready_once_per_worker(elsewhere, tmp_path):
    """Twelve pieces: models are opened as often as there are processes, not pieces."""
    found = run_on_workers(
        elsewhere, work.Prepared(str(tmp_path)), range(12), key=str, needs=Resources(memory=1000),
        kept=tmp_path, console=QUIET,
    )  # fmt: skip
    processes = {process for _, process in found}
    assert len(list(tmp_path.glob("ready-*"))) == len(processes) < 12


def test_a_worker_without_the_folders_says_which_to_share(tmp_path):
    with pytest.raises(Missing, match="give every machine the same --runs"):
        WorkerTask(work.square, str(tmp_path), str(tmp_path / "gone"))(2)


def test_a_worker_that_reads_other_rows_is_refused():
    check_same_run("ab", "ab")
    with pytest.raises(Mismatch, match="same checkpoint and the same files"):
        check_same_run("ab", "cd")


def test_a_model_given_as_an_object_stays_here_and_that_is_said(lm, capsys):
    assert not runs_on_workers("local:2", {"mine": lm}, Console())
    assert "workers of --engine local:2 can't open" in capsys.readouterr().err
    assert runs_on_workers("local:2", {"texts": TextSet("few", SENTENCES)}, QUIET)
    assert not runs_on_workers("local", {}, QUIET)


def test_pieces_that_train_declare_what_they_hold(lm, model):
    spec = FisherSpec(model=model, text="docs", device="cpu")
    needs = training_resources("local:2", spec, lm, copies=6)
    assert (needs.cpus, needs.gpus) == (1, 0)
    assert needs.memory >= 6 * 4 * lm.parameters


@pytest.mark.parametrize("verb", VERBS.values(), ids=str)
def test_an_engine_that_a_verb_cannot_use_is_reported(verb, capsys):
    parallel = [row.words for row in VERBS.values() if row.parallel]
    warn_if_not_parallel(verb, "local:2", Console())
    message = capsys.readouterr().err.replace("\n", " ")
    if verb.words in parallel:
        assert message == ""
    else:
        assert f"'cutaway {verb.words}' runs in one process" in message
        assert all(other in message for other in parallel)
    warn_if_not_parallel(verb, "local", Console())
    assert capsys.readouterr().err == ""
