"""Tests of training together: two processes are one, only the first writes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from cutaway.catalog import VERBS
from cutaway.core.errors import BadSpec
from cutaway.engine.process_group import ProcessGroup, process_group
from cutaway.recipe.life_cycle import check_launcher
from cutaway.store.results import results
from tests.methods.finetune.test_recipe import TASK
from tests.tiny import BAD, GOOD, THINGS, tiny, toy_model

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
# The flag means several processes on this machine; `--cpu` would start one, or want MPI.
ACCELERATE = (
    "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2",
    "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no",
    "--main_process_port", "0",
)  # fmt: skip


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("team")
    toy_model(folder / "llama", "llama", steps=20)
    rows = [(f" the {thing} is {word}", word in GOOD) for thing in THINGS for word in GOOD + BAD]
    lines = [f"{text}\t{int(label)}" for text, label in rows]
    (folder / "rows.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    (folder / "toy.toml").write_text(TASK)
    return folder


def run(words: list[str], *launcher: str) -> subprocess.CompletedProcess:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *launcher, "-m", "cutaway", *words], capture_output=True, text=True,
        timeout=280, env=env,
    )  # fmt: skip


def both(words: list[str], folder: Path, together: tuple[str, ...] = TORCHRUN) -> list[dict]:
    """What the command says alone and together; each in its own folder."""
    said = []
    for name, launcher in (("alone", ()), ("together", together)):
        ran = run([*words, "--runs", str(folder / name), "--device", "cpu", "--json"], *launcher)
        assert ran.returncode == 0, ran.stderr
        # One JSON document: only the first process speaks.
        said.append(json.loads(ran.stdout))
    return said


def near(one: Path, other: Path) -> None:
    first, second = load_file(one), load_file(other)
    assert set(first) == set(second)
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_shares_are_the_batch_and_their_weighted_means_its_mean(count, size):
    rows = np.arange(count)
    values = np.random.default_rng(0).random(count)
    team = [ProcessGroup(size, rank) for rank in range(size)]
    means = [values[one.share(rows)].mean() * one.weight(rows) for one in team]
    assert np.mean(means) == pytest.approx(values.mean(), abs=1e-15)
    if count >= size:
        assert np.concatenate([one.share(rows) for one in team]).tolist() == rows.tolist()


def test_tokens_weigh_as_many_as_there_are():
    lengths = np.array([2, 9, 4, 1, 3])
    tokens = np.random.default_rng(0).random(lengths.sum())
    of = np.split(tokens, np.cumsum(lengths)[:-1])
    rows = np.arange(5)
    means = [
        np.concatenate([of[i] for i in one.share(rows)]).mean()
        * one.weight(rows, lambda some: lengths[some].sum())
        for one in (ProcessGroup(2, 0), ProcessGroup(2, 1))
    ]
    assert np.mean(means) == pytest.approx(tokens.mean(), abs=1e-15)


def test_alone_nothing_is_launched_and_everything_is_as_it_was(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    alone = process_group()
    assert (alone.size, alone.first, alone.weight(np.arange(5))) == (1, True, 1.0)
    assert alone.broadcast(lambda: "x") == "x"
    assert alone.mean({"a": 1.5}) == {"a": 1.5}


@pytest.mark.parametrize("verb", ["probe", "graft learn", "shortcut fit"])
def test_a_verb_that_would_write_twice_is_refused_with_those_that_train(monkeypatch, verb):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(
        BadSpec, match=f"'cutaway {verb}' runs in one process.*quad, finetune, inject"
    ):
        check_launcher(VERBS[verb], "local")
    for other in (row for row in VERBS.values() if row.distributed):
        check_launcher(other, "local")
        with pytest.raises(BadSpec, match="choose one of the two"):
            check_launcher(other, "local:2")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_processes_finetune_to_the_weights_of_one(toy, tmp_path):
    """Batches of five: the shares are three and two rows."""
    words = [
        "finetune", "--model", str(toy / "llama"), "--task", str(toy / "toy.toml"),
        "--data", str(toy / "rows.tsv"), "--shots", "12", "--steps", "12", "--every", "4",
        "--batch", "5", "--optimizer", "sgd", "--lr", "0.05",
    ]  # fmt: skip
    alone, together = both(words, tmp_path, ACCELERATE)
    assert together["best_step"] == alone["best_step"]
    one, other = (
        Path(said["path"]) / "checkpoint" / "model.safetensors" for said in (alone, together)
    )
    near(one, other)
    assert len(results(tmp_path / "together")) == 1
    left = [p.name for p in (tmp_path / "together").rglob("*") if ".tmp-" in p.name]
    assert left == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_processes_train_a_language_model_as_one(tmp_path):
    tiny("llama", tmp_path / "model")
    words = [
        "quad", "--model", str(tmp_path / "model"), "--text", "docs", "--limit", "40",
        "--objective", "ce", "--steps", "6", "--every", "3", "--batch", "5", "--max-tokens", "24",
        "--data", "gen:tense?n=40",
    ]  # fmt: skip
    alone, together = both(words, tmp_path)
    assert set(together["before"]) == set(alone["before"]) == set(together["after"])
    assert together["best"]["value"] == pytest.approx(alone["best"]["value"], rel=1e-5)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_processes_inject_a_skill_as_one(tmp_path):
    """Batches of five, a penalty that both have whole, a Fisher that the first makes."""
    tiny("llama", tmp_path / "model")
    words = [
        "inject", "--model", str(tmp_path / "model"), "--skill", "arithmetic",
        "--data", "gen:arithmetic?n=40,dev=10,test=20,digits=1", "--retain", "docs",
        "--retain-limit", "20", "--regulariser", "ewc", "--strength", "1", "--steps", "4",
        "--every", "2", "--batch", "5", "--fisher-examples", "8", "--max-tokens", "24",
    ]  # fmt: skip
    alone, together = both(words, tmp_path)
    assert together["cells"] == alone["cells"]
    cell = Path("checkpoints") / alone["cells"][0] / "model.safetensors"
    near(Path(alone["path"]) / cell, Path(together["path"]) / cell)
    rows = [results(tmp_path / name).get(alone["address"]).rows for name in ("alone", "together")]
    assert len(rows[0]) == len(rows[1])
