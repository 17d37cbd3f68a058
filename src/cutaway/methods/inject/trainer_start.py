"""Where a training of the Hugging Face Trainer began: kept, so that it can be taken up again."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from cutaway.core.digest import digest_json
from cutaway.core.errors import Mismatch, Missing
from cutaway.methods.inject.fisher_file import tensor_checksums
from cutaway.store.artefacts import description_path, load_artefact, save_artefact

# Under this name a checkpoint's trainer_state.json says which start is its own.
STATE_KEY = "cutaway.EWCCallback"


def initial_weights(args: Any, state: Any, trained: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights that are trained, where they were before the first step of all.

    When training begins they are copied; when it is taken up again (global_step above 0) they are
    what `keep` kept, never what the Trainer has loaded from the checkpoint.
    """
    if trained and state.global_step:
        return _load_initial_weights(args, state, trained)
    return {name: weight.detach().clone() for name, weight in trained.items()}


def save_initial_weights(args: Any, state: Any, start: Mapping[str, Tensor]) -> None:
    """Keep a start in `output_dir`, unless there will be no checkpoints to go on from."""
    if not start or state.global_step:
        return
    mark = digest_json(tensor_checksums(start))
    state.stateful_callbacks[STATE_KEY] = {"start": mark}
    path = _initial_weights_file(args, mark)
    # The description is written last: without it the weights may be half there.
    whole = path.is_file() and description_path(path).is_file()
    if args.save_strategy != "no" and state.is_world_process_zero and not whole:
        save_artefact(path, start, {"method": "inject", "kind": "start", "mark": mark})


def _load_initial_weights(
    args: Any, state: Any, trained: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The kept start of the training that a checkpoint belongs to."""
    known = state.stateful_callbacks.get(STATE_KEY)
    if known is None:
        raise Missing(
            f"The checkpoint of step {state.global_step} comes from a training without "
            "EWCCallback: where that began isn't known. Begin anew, without "
            "resume_from_checkpoint; to hold the checkpoint's own weights, load them as the model."
        )
    path = _initial_weights_file(args, known["start"])
    if not path.is_file():
        raise Missing(
            f"No {str(path)!r}: it has the weights this training began with, and without them its "
            f"step {state.global_step} can't be taken up. Copy it and {path.stem}.json from the "
            "output_dir of the first start (none is written with save_strategy 'no'), or begin "
            "anew, without resume_from_checkpoint."
        )
    kept = load_artefact(path)
    other = sorted(set(kept.names) ^ set(trained))
    if other:
        raise Mismatch(
            f"{str(path)!r} and this model differ in the weights that are trained: {other[0]!r}. "
            "Freeze the same weights as at the first start."
        )
    return {name: kept.tensor(name).to(weight, copy=True) for name, weight in trained.items()}


def _initial_weights_file(args: Any, mark: str) -> Path:
    # Named by what is in it: another training in the same folder doesn't overwrite it.
    return Path(args.output_dir) / f"ewc-start-{mark[:12]}.safetensors"
