"""Ways to break a checkpoint, and to hear how it is refused."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from cutaway.core.errors import CutawayError
from cutaway.models.load import open_model


def edit_json(path: Path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def change_weights(folder: Path, keep) -> None:
    path = folder / "model.safetensors"
    weights = {name: value for name, value in load_file(path).items() if keep(name)}
    save_file(weights, path, metadata={"format": "pt"})


def refusal(name, **options) -> str:
    """The one-line message with which a model is refused."""
    with pytest.raises(CutawayError) as caught:
        open_model(name, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 900
    return message


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))
