"""From a model name to a folder with a checkpoint: bundled, local, or from the hub."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cutaway.core.errors import BadModel, Missing, UnknownName
from cutaway.core.lookup import suggestion
from cutaway.home import expand_path
from cutaway.models.bundled import BUNDLED, unpack_bundled

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
# Root-level files only: folders of a repository have onnx, flax and original weights.
CONFIG_PATTERNS = ["*.json", "tokenizer*", "vocab*", "merges.txt", "*.model", "*.txt"]
WEIGHT_PATTERNS = ["model*.safetensors", "adapter_model*.safetensors"]


@dataclass(frozen=True)
class CheckpointSource:
    """A checkpoint on this machine."""

    name: str
    folder: Path
    digest: str | None = None
    """Its digest, if that is known without reading the weights."""


def fetch_checkpoint(
    name: str, *, revision: str | None = None, offline: bool = False, code: bool = False
) -> CheckpointSource:
    """The checkpoint called `name`, downloaded if necessary."""
    if name in BUNDLED:
        folder, digest = unpack_bundled(name)
        return CheckpointSource(name, folder, digest)
    path = expand_path(name)
    if name and path.is_dir():
        return CheckpointSource(name, path)
    if path.is_file():
        raise BadModel(
            f"{name!r} is a file. A model is a folder in Hugging Face layout, a hub id, "
            f"base+adapter, or bundled: {', '.join(BUNDLED)}."
        )
    if looks_like_path(name):
        raise Missing(f"There is no folder {name!r}. {_near_folder(path)}".rstrip())
    if not HUB_ID.fullmatch(name):
        raise UnknownName(f"{name!r} is not a model name. {_help(name)}")
    return CheckpointSource(name, _download(name, revision, offline=offline, code=code))


def looks_like_path(name: str) -> bool:
    """Whether a name can only mean a folder: it starts like a path, or has too many parts."""
    return name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1


def _download(name: str, revision: str | None, *, offline: bool, code: bool) -> Path:
    """The snapshot folder of a hub repository."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    patterns = [*CONFIG_PATTERNS, *WEIGHT_PATTERNS, *(["*.py"] if code else [])]
    try:
        folder = snapshot_download(
            name, revision=revision, allow_patterns=patterns, ignore_patterns=["*/*"],
            local_files_only=offline,
        )  # fmt: skip
    except GatedRepoError:
        raise Missing(
            f"{name!r} is gated: accept its terms on its hub page, then log in with: hf auth login"
        ) from None
    except RevisionNotFoundError:
        raise UnknownName(f"{name!r} has no revision {revision!r} on the hub.") from None
    except (RepositoryNotFoundError, HFValidationError):
        raise UnknownName(f"Unknown model {name!r}. {_help(name)}") from None
    except Exception as error:  # not only OSError: HTTP and xet have their own errors
        raise Missing(_unreachable(name, revision, offline, error)) from None
    return Path(folder)


def _unreachable(name: str, revision: str | None, offline: bool, error: Exception) -> str:
    from huggingface_hub import constants

    at = f" at revision {revision!r}" if revision else ""
    if offline or constants.HF_HUB_OFFLINE:
        why = "and offline is on"
    else:
        why = f"and the hub can't be reached ({type(error).__name__})"
    return f"Model {name!r}{at} is not in the local hub cache, {why}. {_help(name)}"


def _help(name: str) -> str:
    """Did you mean, and what a model name may be."""
    known = [*BUNDLED, *_checkpoints(Path())]
    return (
        f"{suggestion(name, known)}A model is bundled ({', '.join(BUNDLED)}), a hub id, a folder, "
        "or base+adapter."
    )


def _near_folder(path: Path) -> str:
    """`Did you mean 'x'?` for an existing folder with a similar name."""
    parent = next((p for p in path.parents if p.is_dir()), Path())
    return (
        suggestion(path.name, _folders(parent)).strip() or f"The nearest existing folder: {parent}"
    )


def _folders(parent: Path) -> Iterable[str]:
    try:
        return [p.name for p in parent.iterdir() if p.is_dir()]
    except OSError:
        return []


def _checkpoints(parent: Path) -> list[str]:
    return [name for name in _folders(parent) if (parent / name / "config.json").is_file()]
