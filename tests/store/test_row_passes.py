"""Passes over rows: what was computed before a kill is not computed again."""

import numpy as np
import pytest

from cutaway.console import Console
from cutaway.store import row_passes as module
from cutaway.store.row_passes import fill_rows, saving_passes

QUIET = Console(quiet=True)
BATCHES = [np.array([3, 1]), np.array([0]), np.array([2])]


@pytest.fixture(autouse=True)
def always(monkeypatch) -> None:
    """Every chance to save is taken."""
    monkeypatch.setattr("cutaway.store.snapshots.SAVE_SECONDS", 0.0)
    monkeypatch.setattr("cutaway.store.snapshots.WORK_PER_WRITING", 0.0)


class Model:
    """Squares row numbers; ends the process's work at a call."""

    def __init__(self, ends_at: int = 99) -> None:
        self.calls, self.ends_at = [], ends_at

    def __call__(self, rows):
        if len(self.calls) == self.ends_at:
            raise KeyboardInterrupt
        self.calls.append(rows.tolist())
        return {"square": rows.astype(float) ** 2}


def run(model: Model, *, inputs: str = "rows", weights: str = "w") -> list[float]:
    values = np.full(4, np.nan)
    fill_rows({"square": values}, BATCHES, model, inputs=lambda: inputs, weights=lambda: weights)
    return values.tolist()


def test_a_killed_pass_goes_on_after_its_last_saved_batch(tmp_path) -> None:
    with saving_passes(tmp_path, QUIET), pytest.raises(KeyboardInterrupt):
        run(Model(ends_at=2))
    again = Model()
    with saving_passes(tmp_path, QUIET):
        assert run(again) == [0.0, 1.0, 4.0, 9.0]
    assert again.calls == [[2]]


def test_a_finished_pass_is_read_and_not_repeated(tmp_path) -> None:
    with saving_passes(tmp_path, QUIET):
        run(Model())
    again = Model()
    with saving_passes(tmp_path, QUIET):
        assert run(again) == [0.0, 1.0, 4.0, 9.0]
    assert again.calls == []


@pytest.mark.parametrize("other", [{"inputs": "other rows"}, {"weights": "after a step"}])
def test_other_rows_and_other_weights_are_another_pass(tmp_path, other) -> None:
    with saving_passes(tmp_path, QUIET):
        run(Model())
    again = Model()
    with saving_passes(tmp_path, QUIET):
        run(again, **other)
    assert len(again.calls) == len(BATCHES)


def test_a_fresh_run_computes_no_digest_before_something_is_saved(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("cutaway.store.snapshots.SAVE_SECONDS", 30.0)

    def digest() -> str:
        raise AssertionError("the digest of all weights takes time")

    with saving_passes(tmp_path, QUIET):
        fill_rows({"square": np.zeros(4)}, BATCHES, Model(), inputs=digest, weights=digest)
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_nothing_is_saved(tmp_path) -> None:
    with saving_passes(None, QUIET):
        assert run(Model()) == [0.0, 1.0, 4.0, 9.0]
    assert run(Model()) == [0.0, 1.0, 4.0, 9.0]


def test_only_the_newest_passes_over_the_same_rows_are_kept(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 2)
    with saving_passes(tmp_path, QUIET):
        run(Model(), inputs="a", weights="of another set")
        for number in range(4):
            run(Model(), weights=f"step {number}")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a-of another set",
        "rows-step 2",
        "rows-step 3",
    ]
