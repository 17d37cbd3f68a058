"""How commands talk: results on stdout, everything else on stderr."""

import json
import sys
from dataclasses import asdict, dataclass
from typing import Any, Literal

Device = Literal["auto", "cpu", "cuda"]
Dtype = Literal["float32", "float16", "bfloat16"]


@dataclass(frozen=True)
class OutputOptions:
    """How a command talks."""

    dry_run: bool = False
    """Only estimate rows, tokens, time, disk and memory."""
    print_spec: bool = False
    """Show the resolved spec as JSON and stop."""
    json: bool = False
    """The summary as JSON on stdout, nothing else there."""
    quiet: bool = False
    """No progress and no messages."""


@dataclass(frozen=True)
class SpecOverrides:
    """What holds in place of what a spec file says, by the specs' own names."""

    runs: str | None = None
    """Folder that keeps the results, or a URL; the file's unless given."""
    engine: str | None = None
    """Where the pieces run; the file's unless given."""
    device: Device | None = None
    """Where the model runs; the file's unless given."""
    dtype: Dtype | None = None
    """Precision of the model; the file's unless given."""
    seed: int | None = None
    """Decides every split, start and sample; the file's unless given."""
    offline: bool | None = None
    """Never ask the network; as the file says unless given."""


@dataclass(frozen=True)
class StudyOptions:
    """Where and how the runs behind a command are made: the specs' own options, by their names."""

    engine: str = "local"
    """Where the pieces run: local, local:N (processes), ray, or the address of a Ray cluster."""
    device: Device = "auto"
    """Where the model runs; auto takes a GPU when there is one."""
    dtype: Dtype = "float32"
    """Precision of the model's weights and activations."""
    seed: int = 0
    """Decides every split, start and sample."""
    offline: bool = False
    """Never ask the network; use what is on this machine."""

    def plain(self) -> dict[str, Any]:
        """As fields of a spec."""
        return asdict(self)


def print_result(text: str) -> None:
    """One piece of result, on stdout."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def print_json(value: Any) -> None:
    """A value as JSON, on stdout."""
    print_result(json.dumps(value, indent=2, default=str, ensure_ascii=False))


def print_message(text: str) -> None:
    """One message for the user, on stderr."""
    sys.stderr.write(text if text.endswith("\n") else text + "\n")
