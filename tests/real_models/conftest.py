"""One real model at a time, opened as the refusals say, and a table of what was measured."""

import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cutaway.core.errors import CutawayError
from cutaway.models.lm import LM
from cutaway.models.load import open_model
from tests.real_models.packages import REAL_MODELS, RealModel, unpack

FOUND = pytest.StashKey[list]()


@dataclass
class OpenedModel:
    """A real model, and what is known about it so far."""

    model: RealModel
    path: Path
    lm: LM
    advice: list[str]
    """The refusals that were followed."""
    seen: dict[str, Any] = field(default_factory=dict)


def follow_advice(path: Path) -> tuple[Path, LM, list[str]]:
    """Open a model; each time it is refused, run the printed command and open what it names."""
    advice: list[str] = []
    while True:
        try:
            return path, open_model(str(path)), advice
        except CutawayError as refusal:
            message = str(refusal)
            start = next((w for w in (": python -c ", ": cp ") if w in message), None)
            if start is None or message in advice:
                raise
        advice.append(message)
        command = message[message.index(start) + 2 :]
        command = command.replace("python ", f"{shlex.quote(sys.executable)} ", 1)
        subprocess.run(command, shell=True, check=True, capture_output=True)
        if f"{path.name}-safetensors beside it" in message:
            path = path.with_name(f"{path.name}-safetensors")


@pytest.fixture(scope="module", params=REAL_MODELS, ids=lambda model: model.name)
def real(request, tmp_path_factory):
    """The opened model; its files are removed after its tests."""
    folder = tmp_path_factory.mktemp("real")
    with pytest.MonkeyPatch.context() as patch:
        # This fixture is set up before the one that gives every test a home.
        patch.setenv("CUTAWAY_HOME", str(tmp_path_factory.getbasetemp() / "home"))
        opened = OpenedModel(request.param, *follow_advice(unpack(request.param, folder)))
    request.config.stash.setdefault(FOUND, []).append(opened.seen)
    yield opened
    shutil.rmtree(folder)


def pytest_terminal_summary(terminalreporter, config) -> None:
    """The rows of the table in docs/models.md."""
    terminalreporter.section("real models")
    for seen in config.stash.get(FOUND, []):
        terminalreporter.write_line("| " + " | ".join(map(str, seen.values())) + " |")
