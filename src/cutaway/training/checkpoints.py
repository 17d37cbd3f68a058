"""Training checkpoints: weights, best weights and optimiser state, to resume a killed training.

A checkpoint is a folder `step-00000100` with an artefact in it (safetensors and JSON). It is
written under a temporary name and renamed; only then the one before is removed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from cutaway.console import Console
from cutaway.core.errors import Corrupt, Mismatch, Missing
from cutaway.store import files
from cutaway.store.artefacts import Artefact, load_artefact, save_artefact

STATE_FILE = "state.safetensors"


@dataclass(frozen=True)
class TrainingState:
    """Everything a training needs to resume."""

    facts: dict[str, Any]
    """Plain values: step, curve, best step and score."""
    weights: dict[str, Tensor]
    best: dict[str, Tensor] | None
    """The best weights, unless they are the current ones."""
    optimizer: dict[str, dict[str, Tensor]]
    """By parameter name."""


def save_state(folder: Path, identity: Mapping[str, Any], state: TrainingState) -> None:
    """Write the state to `folder`; if killed at any moment, the state before is still there."""
    place = folder / f"step-{state.facts['step']:08d}"
    aside = files.temporary_path(place)
    try:
        save_artefact(
            aside / STATE_FILE, dict(_named_tensors(state)), {"identity": identity, **state.facts}
        )
        with files.disk_errors(place):
            files.remove_folder(place)
            aside.rename(place)
            files.sync_folder(folder)
    finally:
        files.discard(aside)
    for older in _steps(folder):
        if older != place:
            files.remove_folder(older)


def load_state(
    folder: Path, identity: Mapping[str, Any], console: Console | None
) -> TrainingState | None:
    """The newest readable state in `folder`, or None; Mismatch if it is another training's."""
    console = console or Console(quiet=True)
    files.remove_stale_temporaries(folder)
    for place in reversed(_steps(folder)):
        try:
            artefact = load_artefact(place / STATE_FILE)
        except (Corrupt, Missing) as error:
            console.print(f"A checkpoint is skipped: {error}")
            continue
        _need_same_identity(artefact.meta["identity"], files.jsonable(identity), folder)
        console.print(f"Resuming from step {artefact.meta['step']}.")
        return _state_from_artefact(artefact)
    return None


def _steps(folder: Path) -> list[Path]:
    return [
        path
        for path in sorted(folder.glob("step-*"))
        if path.is_dir() and not files.is_temporary(path)
    ]


def _named_tensors(state: TrainingState) -> Iterator[tuple[str, Tensor]]:
    yield from ((f"weights/{name}", value) for name, value in state.weights.items())
    yield from ((f"best/{name}", value) for name, value in (state.best or {}).items())
    for name, values in state.optimizer.items():
        yield from ((f"optimizer/{name}/{key}", value) for key, value in values.items())


def _state_from_artefact(artefact: Artefact) -> TrainingState:
    parts: dict[str, dict[str, Tensor]] = {"weights": {}, "best": {}, "optimizer": {}}
    for name in artefact.names:
        part, _, rest = name.partition("/")
        # A copy, because the file is removed with the next checkpoint.
        parts[part][rest] = artefact.tensor(name).clone()
    optimizer: dict[str, dict[str, Tensor]] = {}
    for name, value in parts["optimizer"].items():
        parameter, _, key = name.rpartition("/")
        optimizer.setdefault(parameter, {})[key] = value
    facts = {key: value for key, value in artefact.meta.items() if key != "identity"}
    return TrainingState(facts, parts["weights"], parts["best"] or None, optimizer)


def _need_same_identity(saved: Any, current: Any, folder: Path) -> None:
    """Mismatch that names the first thing that differs."""
    for name in sorted({*saved, *current}):
        if saved.get(name) != current.get(name):
            raise Mismatch(
                f"{str(folder)!r} holds the checkpoint of another training: {name} is "
                f"{_short(saved.get(name))} there and {_short(current.get(name))} here. Remove the "
                "folder to start again, or choose another."
            )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
