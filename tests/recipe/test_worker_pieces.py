"""Pieces on workers run where the command was given, and failures are reported together."""

import os
from pathlib import Path

import pytest

from cutaway.console import Console
from cutaway.core.errors import Mismatch, Missing, RunError
from cutaway.core.textset import TextSet
from cutaway.engine import PieceFailed
from cutaway.engine.pieces import Resources
from cutaway.recipe.options import RunOptions
from cutaway.recipe.worker_pieces import (
    SHARED_MARKER,
    WorkerTask,
    check_same_run,
    failed_pieces_error,
    local_spec,
    run_on_workers,
    runs_on_workers,
    sendable,
)

TEXTS = TextSet("mine", ("a", "b"))


def where(piece: int) -> str:
    if piece < 0:
        raise Missing(f"no rows for {piece}")
    return f"{piece} in {Path.cwd()}"


@pytest.fixture(autouse=True)
def _stay_here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def test_a_worker_changes_to_the_directory_of_the_command(tmp_path) -> None:
    (tmp_path / "run").mkdir()
    task = WorkerTask(where, str(tmp_path), str(tmp_path / "run"))
    os.chdir("/")
    assert task(1) == f"1 in {tmp_path}"


@pytest.mark.parametrize("missing", ["folder", "kept"])
def test_a_worker_without_the_shared_folders_says_which_one_is_missing(tmp_path, missing) -> None:
    folders = {"folder": str(tmp_path), "kept": str(tmp_path)} | {missing: str(tmp_path / "gone")}
    with pytest.raises(Missing, match=r"no folder .*gone.*give every machine the same --runs"):
        WorkerTask(where, **folders)(1)


def test_pieces_stay_here_on_the_local_engine_and_with_a_model_object(tiny_lm, capsys) -> None:
    assert not runs_on_workers("local", {}, Console())
    assert runs_on_workers("local:2", {"x": TEXTS}, Console())
    assert not runs_on_workers("local:2", {"m": tiny_lm("llama")}, Console())
    assert "can't open" in capsys.readouterr().err.replace("\n", " ")


def test_models_are_not_sent_and_a_worker_uses_no_engine(tiny_lm) -> None:
    assert sendable({"m": tiny_lm("llama"), "t": TEXTS}) == {"t": TEXTS}
    assert sendable(None) == {}
    assert local_spec(RunOptions(engine="local:4", seed=3)) == RunOptions(seed=3)


def test_another_checkpoint_on_a_worker_is_refused() -> None:
    check_same_run("a", "a")
    with pytest.raises(Mismatch, match=r"run b\) than here \(run a\)"):
        check_same_run("b", "a")


@pytest.mark.parametrize("engine", ["local", "local:2"])
def test_finished_pieces_come_back_before_a_failure_is_raised(engine, tmp_path) -> None:
    found = []
    with pytest.raises(RunError, match=r"1 piece failed.*piece -1 .*no rows for -1.*continue"):
        for piece, result in run_on_workers(
            engine, where, [1, -1, 2], key=lambda piece: f"piece {piece}", needs=Resources(),
            kept=tmp_path, console=Console(quiet=True),
        ):  # fmt: skip
            found.append((piece, result))
    assert sorted(found) == [(1, f"1 in {tmp_path}"), (2, f"2 in {tmp_path}")]
    assert (tmp_path / SHARED_MARKER).is_file()


def test_the_error_of_several_pieces_has_the_exit_status_of_the_first() -> None:
    broken = [PieceFailed(f"k{i}", "why", 3, exit_status=2 - i) for i in range(2)]
    error = failed_pieces_error(broken)
    assert error.exit_status == 2
    assert "2 pieces failed" in str(error)
