"""Options that commands share."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Device = str
Dtype = Literal["auto", "float32", "float16", "bfloat16"]
Quantise = Literal["none", "int8", "int4"]
Bos = Literal["auto", "add", "keep"]


@dataclass(frozen=True)
class OutputOptions:
    """What a command prints."""

    dry_run: bool = False
    """Only estimate rows, tokens, time, disk and memory."""
    print_spec: bool = False
    """Print the resolved spec as JSON and stop."""
    json: bool = False
    """The summary as JSON on stdout, nothing else there."""
    quiet: bool = False
    """No progress and no messages."""


@dataclass(frozen=True)
class SpecOverrides:
    """Options that replace those of a spec file."""

    runs: str | None = None
    """Folder that keeps the results, or a URL; default: as in the file."""
    engine: str | None = None
    """Where the pieces run; default: as in the file."""
    device: Device | None = None
    """Where the model runs; default: as in the file."""
    dtype: Dtype | None = None
    """Precision of the model; default: as in the file."""
    bos: Bos | None = None
    """Start token: auto, add or keep; default: as in the file."""
    seed: int | None = None
    """Random seed of splits, initial weights and samples; default: as in the file."""
    offline: bool | None = None
    """Use only what is on this machine, never the network; default: as in the file."""


@dataclass(frozen=True)
class StudyOptions:
    """Options of the runs that a command makes."""

    engine: str = "local"
    """Where the pieces run: local, local:N (processes), ray, or the address of a Ray cluster."""
    device: Device = "auto"
    """Where the model runs; auto takes a GPU when there is one."""
    dtype: Dtype = "auto"
    """Precision of the model's weights and activations."""
    bos: Bos = "auto"
    """Start token: auto (as the tokenizer does it), add, or keep (auto without a warning)."""
    seed: int = 0
    """Random seed of splits, initial weights and samples."""
    offline: bool = False
    """Use only what is on this machine, never the network."""

    def plain(self) -> dict[str, Any]:
        """The options as fields of a spec."""
        return asdict(self)
