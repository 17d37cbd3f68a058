"""Training checkpoints: written completely or not at all, resumed only by the same training."""

import pytest
import torch

from cutaway.core.errors import Mismatch
from cutaway.store.snapshots import STATE_FILE
from cutaway.training.checkpoints import TrainingState, load_state, save_state

IDENTITY = {"run": "a", "lr": 0.1}


def state(step: int, *, best: bool = True) -> TrainingState:
    weights = {"w": torch.full((2, 2), float(step)), "b": torch.zeros(2)}
    return TrainingState(
        facts={"step": step, "curve": [{"step": 0, "score": None}], "best": 0.5},
        weights=weights,
        best={name: value + 1 for name, value in weights.items()} if best else None,
        optimizer={"w": {"exp_avg": torch.ones(2, 2), "step": torch.tensor(3.0)}},
    )


def test_a_state_comes_back_as_it_was(tmp_path) -> None:
    for best in (True, False):
        save_state(tmp_path, IDENTITY, state(4, best=best))
        saved, expected = load_state(tmp_path, IDENTITY, None), state(4, best=best)
        assert saved.facts == expected.facts
        assert (saved.best is None) == (not best)
        for name, value in expected.weights.items():
            assert torch.equal(saved.weights[name], value)
        for key, value in expected.optimizer["w"].items():
            assert torch.equal(saved.optimizer["w"][key], value)


def test_only_the_newest_checkpoint_is_kept(tmp_path) -> None:
    for step in (1, 2, 30):
        save_state(tmp_path, IDENTITY, state(step))
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000030"]
    assert load_state(tmp_path, IDENTITY, None).facts["step"] == 30


def test_a_folder_without_a_readable_checkpoint_has_none(tmp_path) -> None:
    assert load_state(tmp_path / "new", IDENTITY, None) is None
    save_state(tmp_path, IDENTITY, state(1))
    file = tmp_path / "step-00000001" / STATE_FILE
    file.write_bytes(file.read_bytes()[:-8])
    assert load_state(tmp_path, IDENTITY, None) is None


def test_a_killed_write_leaves_the_state_before(tmp_path, monkeypatch) -> None:
    save_state(tmp_path, IDENTITY, state(1))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr("cutaway.store.snapshots.save_artefact", killed)
        with pytest.raises(KeyboardInterrupt):
            save_state(tmp_path, IDENTITY, state(2))
    assert load_state(tmp_path, IDENTITY, None).facts["step"] == 1


@pytest.mark.parametrize(
    ("other", "named"),
    [({"run": "b", "lr": 0.1}, "run is 'a' there and 'b' here"),
     ({"run": "a", "lr": 0.2}, "lr is 0.1 there and 0.2 here"),
     ({"run": "a"}, "lr is 0.1 there and None here"),
     ({"run": "a", "lr": 0.1, "x": "y" * 300}, r"x is None there and 'y+\.\.\. here")],
)  # fmt: skip
def test_another_training_is_refused_by_what_differs(other, named, tmp_path) -> None:
    save_state(tmp_path, IDENTITY, state(1))
    with pytest.raises(Mismatch, match=named):
        load_state(tmp_path, other, None)
