"""Training checkpoints: weights, best weights and optimiser state, to resume a killed training."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from cutaway.console import Console
from cutaway.core.errors import Mismatch
from cutaway.store import files
from cutaway.store.artefacts import Artefact, load_artefact
from cutaway.store.snapshots import read_snapshot, write_snapshot


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


def save_state(
    folder: Path, identity: Mapping[str, Any], state: TrainingState
) -> dict[str, Tensor]:
    """Write the state to `folder`; the best weights as views of the file.

    If killed at any moment, the state before is still there.
    """
    facts = {"identity": identity, **state.facts}
    path = write_snapshot(folder, state.facts["step"], dict(_named_tensors(state)), facts)
    return load_artefact(path, verify=False).tensors("weights/" if state.best is None else "best/")


def load_state(
    folder: Path, identity: Mapping[str, Any], console: Console | None
) -> TrainingState | None:
    """The newest readable state in `folder`, or None; Mismatch if it is another training's."""
    console = console or Console(quiet=True)
    artefact = read_snapshot(folder, console)
    if artefact is None:
        return None
    _need_same_identity(artefact.meta["identity"], files.jsonable(identity), folder)
    console.print(f"Resuming from step {artefact.meta['step']}.")
    return _state_from_artefact(artefact)


def _named_tensors(state: TrainingState) -> Iterator[tuple[str, Tensor]]:
    yield from ((f"weights/{name}", value) for name, value in state.weights.items())
    yield from ((f"best/{name}", value) for name, value in (state.best or {}).items())
    for name, values in state.optimizer.items():
        yield from ((f"optimizer/{name}/{key}", value) for key, value in values.items())


def _state_from_artefact(artefact: Artefact) -> TrainingState:
    optimizer: dict[str, dict[str, Tensor]] = {}
    for name, value in artefact.tensors("optimizer/").items():
        parameter, _, key = name.rpartition("/")
        # A copy, because the optimizer changes it.
        optimizer.setdefault(parameter, {})[key] = value.clone()
    facts = {key: value for key, value in artefact.meta.items() if key != "identity"}
    best = artefact.tensors("best/") or None
    return TrainingState(facts, artefact.tensors("weights/"), best, optimizer)


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
