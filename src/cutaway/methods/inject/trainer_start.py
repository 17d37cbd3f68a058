"""The initial weights of a Hugging Face Trainer run, saved so that the run can be resumed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from cutaway.core.digest import digest_json
from cutaway.core.errors import Mismatch, Missing
from cutaway.methods.inject.fisher_file import tensor_checksums
from cutaway.store.artefacts import description_path, load_artefact, save_artefact

# The key in a checkpoint's trainer_state.json that names the file of initial weights.
STATE_KEY = "cutaway.EWCCallback"


def initial_weights(args: Any, state: Any, trained: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The trained weights as they were before the first step.

    A new run copies them. A resumed run (global_step above 0) reads what `save_initial_weights`
    saved, because the Trainer has already loaded the checkpoint into the model.
    """
    if trained and state.global_step:
        return _load_initial_weights(args, state, trained)
    return {name: weight.detach().clone() for name, weight in trained.items()}


def save_initial_weights(args: Any, state: Any, weights: Mapping[str, Tensor]) -> None:
    """Save initial weights in `output_dir`, unless the run writes no checkpoints."""
    if not weights or state.global_step:
        return
    digest = digest_json(tensor_checksums(weights))
    state.stateful_callbacks[STATE_KEY] = {"start": digest}
    path = _initial_weights_file(args, digest)
    # The description is written last: without it the weights may be incomplete.
    complete = path.is_file() and description_path(path).is_file()
    if args.save_strategy != "no" and state.is_world_process_zero and not complete:
        save_artefact(path, weights, {"method": "inject", "kind": "start", "mark": digest})


def _load_initial_weights(
    args: Any, state: Any, trained: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The initial weights of the run that a checkpoint belongs to."""
    saved = state.stateful_callbacks.get(STATE_KEY)
    if saved is None:
        raise Missing(
            f"The checkpoint of step {state.global_step} comes from a training without "
            "EWCCallback, so its initial weights are not known. Start again without "
            "resume_from_checkpoint; to regularise towards the checkpoint, load it as the model."
        )
    path = _initial_weights_file(args, saved["start"])
    if not path.is_file():
        raise Missing(
            f"No {str(path)!r}: without the initial weights of this training its step "
            f"{state.global_step} can't be resumed. Copy it and {path.stem}.json from the "
            "output_dir of the first run (none is written with save_strategy 'no'), or start "
            "again without resume_from_checkpoint."
        )
    artefact = load_artefact(path)
    differing = sorted(set(artefact.names) ^ set(trained))
    if differing:
        raise Mismatch(
            f"{str(path)!r} and this model differ in which weights are trained: {differing[0]!r}. "
            "Freeze the same weights as in the first run."
        )
    return {name: artefact.tensor(name).to(weight, copy=True) for name, weight in trained.items()}


def _initial_weights_file(args: Any, digest: str) -> Path:
    # Named by its content, so that another training in the same folder doesn't overwrite it.
    return Path(args.output_dir) / f"ewc-start-{digest[:12]}.safetensors"
