"""Initial weights of a Trainer run: copied at the start, read back when it is resumed."""

from types import SimpleNamespace

import pytest
import torch

from cutaway.core.errors import Mismatch, Missing
from cutaway.methods.inject.trainer_start import (
    STATE_KEY,
    initial_weights,
    save_initial_weights,
)

WEIGHTS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4)}


def arguments(folder, save_strategy: str = "steps") -> SimpleNamespace:
    return SimpleNamespace(output_dir=str(folder), save_strategy=save_strategy)


def state(step: int = 0, first: bool = True, saved: dict | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        global_step=step, is_world_process_zero=first, stateful_callbacks=dict(saved or {})
    )


def test_a_new_run_copies_the_weights(tmp_path) -> None:
    start = initial_weights(arguments(tmp_path), state(), WEIGHTS)
    assert all(torch.equal(start[name], value) for name, value in WEIGHTS.items())
    start["a"].zero_()
    assert WEIGHTS["a"].sum() > 0


def test_a_resumed_run_gets_the_weights_of_the_first_start(tmp_path) -> None:
    begun = state()
    save_initial_weights(arguments(tmp_path), begun, WEIGHTS)
    trained = {name: value + 1 for name, value in WEIGHTS.items()}
    resumed = state(3, saved=begun.stateful_callbacks)
    start = initial_weights(arguments(tmp_path), resumed, trained)
    assert all(torch.equal(start[name], value) for name, value in WEIGHTS.items())
    # Saving again when resumed changes nothing.
    save_initial_weights(arguments(tmp_path), resumed, trained)
    assert len(list(tmp_path.glob("*.safetensors"))) == 1


def test_two_trainings_in_one_folder_keep_their_own_start(tmp_path) -> None:
    states = [state(), state()]
    for number, one in enumerate(states):
        save_initial_weights(arguments(tmp_path), one, {"a": torch.full((2,), float(number))})
    for number, one in enumerate(states):
        resumed = state(1, saved=one.stateful_callbacks)
        start = initial_weights(arguments(tmp_path), resumed, {"a": torch.zeros(2)})
        assert start["a"].tolist() == [number, number]


@pytest.mark.parametrize("skip", [{"save_strategy": "no"}, {"first": False}])
def test_nothing_is_written_without_checkpoints_or_by_other_processes(skip, tmp_path) -> None:
    strategy = skip.get("save_strategy", "steps")
    one = state(first=skip.get("first", True))
    save_initial_weights(arguments(tmp_path, strategy), one, WEIGHTS)
    assert not list(tmp_path.iterdir())
    assert STATE_KEY in one.stateful_callbacks


def test_a_checkpoint_without_its_start_is_refused_with_a_remedy(tmp_path) -> None:
    with pytest.raises(Missing, match="training without EWCCallback"):
        initial_weights(arguments(tmp_path), state(4), WEIGHTS)
    gone = state(4, saved={STATE_KEY: {"start": "0" * 64}})
    with pytest.raises(Missing, match=r"ewc-start-0+\.json from the"):
        initial_weights(arguments(tmp_path), gone, WEIGHTS)


def test_other_trained_weights_than_at_the_start_are_refused(tmp_path) -> None:
    begun = state()
    save_initial_weights(arguments(tmp_path), begun, WEIGHTS)
    resumed = state(2, saved=begun.stateful_callbacks)
    with pytest.raises(Mismatch, match=r"'b'. Freeze the same weights"):
        initial_weights(arguments(tmp_path), resumed, {"a": WEIGHTS["a"]})


def test_a_run_that_trains_none_of_its_weights_needs_no_start(tmp_path) -> None:
    assert initial_weights(arguments(tmp_path), state(5), {}) == {}
    save_initial_weights(arguments(tmp_path), state(), {})
    assert not list(tmp_path.iterdir())
