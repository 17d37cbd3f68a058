"""From a model name to a checkpoint folder (bundled, local, or from the hub), and its validation
before anything in it is loaded."""

import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from cutaway.core.errors import BadModel, Missing, UnknownName
from cutaway.core.lookup import suggestion
from cutaway.home import expand_path, path_exists
from cutaway.models.anatomy import ANATOMIES
from cutaway.models.bundled import BUNDLED, unpack_bundled, unpack_gguf
from cutaway.models.gguf_file import conversion_notes, find_gguf_file
from cutaway.models.load_tokenizer import is_wordpiece_folder, letter_case

MAX_NAME = 4096
"""The longest path that is looked for."""
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
# Root-level files only: folders of a repository have onnx, flax and original weights.
CONFIG_PATTERNS = ["*.json", "tokenizer*", "vocab*", "merges.txt", "*.model", "*.txt"]
WEIGHT_PATTERNS = ["model*.safetensors", "adapter_model*.safetensors"]
PICKLE_PATTERNS = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.pickle", "*.ckpt")
NAMES_BYTES = 4 * 2**20
"""How much of a weight file is searched for the names of its tensors."""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.txt", "vocab.json", "spiece.model",
              "sentencepiece.bpe.model", "bpe.codes")  # fmt: skip


@dataclass(frozen=True)
class CheckpointSource:
    """A checkpoint on this machine."""

    name: str
    folder: Path
    digest: str | None = None
    """Its digest, if that is known without reading the weights."""
    notes: tuple[str, ...] = ()
    """What the user should know about how it was converted."""


def fetch_checkpoint(
    name: str, *, revision: str | None = None, offline: bool = False, code: bool = False
) -> CheckpointSource:
    """The checkpoint called `name`, downloaded if necessary."""
    if name in BUNDLED:
        folder, digest = unpack_bundled(name)
        return CheckpointSource(name, folder, digest)
    path = expand_path(name)
    if name and path_exists(path):
        return _local_checkpoint(name, path)
    file = name.lower().endswith(".gguf")
    if (file or looks_like_path(name)) and len(name) <= MAX_NAME:
        what = "file" if file else "folder"
        raise Missing(f"There is no {what} {name!r}. {_near_folder(path)}".rstrip())
    if not HUB_ID.fullmatch(name) or len(name) > MAX_NAME:
        raise UnknownName(f"{name[:80]!r} is not a model name. {_help(name[:80])}")
    return CheckpointSource(name, _download(name, revision, offline=offline, code=code))


def _local_checkpoint(name: str, path: Path) -> CheckpointSource:
    """The checkpoint in an existing folder or GGUF file."""
    gguf = find_gguf_file(path)
    if gguf is not None:
        folder, digest = unpack_gguf(gguf)
        return CheckpointSource(name, folder, digest, conversion_notes(folder))
    if path.is_file():
        raise BadModel(
            f"{name!r} is a file. A model is a folder in Hugging Face layout, a .gguf file, a hub "
            f"id, base+adapter, or bundled: {', '.join(BUNDLED)}."
        )
    return CheckpointSource(name, path)


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
    checkpoints = [name for name in _folders(Path()) if Path(name, "config.json").is_file()]
    known = [*BUNDLED, *checkpoints]
    return (
        f"{suggestion(name, known)}A model is bundled ({', '.join(BUNDLED)}), a hub id, a folder, "
        "a .gguf file, or base+adapter."
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


def need_config(folder: Path) -> dict[str, Any]:
    """The checkpoint's config; BadModel if the folder is something else."""
    path = folder / "config.json"
    if not path.is_file():
        raise BadModel(_no_config(folder))
    config = read_json(path)
    if not isinstance(config.get("model_type"), str):
        raise BadModel(_no_model_type(path))
    if (folder / "adapter_config.json").is_file():
        raise BadModel(
            f"{folder} has a full model and an adapter (adapter_config.json), which transformers "
            "would merge. Put them in two folders, and name both: BASE+ADAPTER."
        )
    if config.get("transformers_weights") is not None:
        raise BadModel(
            f"{path} names other weights ({config['transformers_weights']!r}) in "
            "transformers_weights. Rename that file to model.safetensors and remove the entry."
        )
    return config


def need_weights(folder: Path, stem: str = "model") -> list[Path]:
    """The safetensors files of a checkpoint, all readable; BadModel or Missing otherwise."""
    index, single = folder / f"{stem}.safetensors.index.json", folder / f"{stem}.safetensors"
    # Like transformers: a single file has priority over an index.
    if index.is_file() and not _is_file(single):
        files = [folder / shard for shard in _shards(index)]
    else:
        files = [single]
    absent = [file.name for file in files if not _is_file(file)]
    if absent or not files:
        raise _no_weights(folder, absent)
    for file in files:
        _need_readable(file)
    return files


def _is_file(path: Path) -> bool:
    """Whether there is such a file; False for a name that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _shards(index: Path) -> list[str]:
    """The files named by an index; BadModel for one outside its folder."""
    named = read_json(index).get("weight_map")
    shards = sorted({str(s) for s in named.values()}) if isinstance(named, dict) else []
    for shard in shards:
        if Path(shard).name != shard:
            raise BadModel(f"{index} names {shard!r}: a shard must be in the same folder.")
    return shards


def tensor_shapes(files: list[Path]) -> list[list[int]]:
    """The shape of every tensor, from the headers."""
    shapes = []
    for file in files:
        with safe_open(file, framework="pt") as tensors:
            shapes += [tensors.get_slice(name).get_shape() for name in list(tensors.keys())]
    return shapes


def need_tokenizer(folder: Path) -> None:
    """Missing unless the folder has a tokenizer."""
    if any((folder / name).is_file() for name in TOKENIZER_FILES):
        return
    start = f"{folder} has no tokenizer (looked for {', '.join(TOKENIZER_FILES[:4])}, ...)."
    above = folder.absolute().parent
    near = next((above / name for name in TOKENIZER_FILES if (above / name).is_file()), None)
    if near is not None:
        command = f"cp {shlex.quote(str(near))} {shlex.quote(str(folder.absolute()))}"
        raise Missing(
            f"{start} The folder above has {near.name!r}; if it belongs to this model: {command}"
        )
    raise Missing(
        f"{start} Save one with the weights: "
        "AutoTokenizer.from_pretrained(BASE).save_pretrained(FOLDER)."
    )


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; BadModel when it can't be read."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadModel(f"{path} can't be read as JSON ({error}). Download it again.") from None
    if not isinstance(value, dict):
        raise BadModel(f"{path} holds {type(value).__name__}, expected an object.")
    return value


def _need_readable(file: Path) -> None:
    """BadModel unless the header is valid and the file as long as it says; loads nothing."""
    try:
        with safe_open(file, framework="pt") as tensors:
            list(tensors.keys())
    except (SafetensorError, OSError) as error:
        raise BadModel(
            f"{file} is not a complete safetensors file ({error}). It is truncated, corrupt or in "
            "another format: download or convert it again."
        ) from None


def _no_config(folder: Path) -> str:
    adapter = folder / "adapter_config.json"
    if adapter.is_file():
        base = read_json(adapter).get("base_model_name_or_path") or "BASE"
        return f"{folder} is a PEFT adapter, not a model: open it as '{base}+{folder}'."
    inside = sorted(p.parent.name for p in folder.glob("*/config.json"))
    hint = f" A folder inside has one: {inside[0]!r}." if inside else ""
    return f"{folder} has no config.json: it isn't a checkpoint in Hugging Face layout.{hint}"


def _no_model_type(path: Path) -> str:
    """The refusal of a config without model_type, with the families its weights are named as.

    Of several, the one in the folder's name is offered, which is how transformers guesses.
    """
    start, families = f"{path} has no model_type", _families_by_names(path.parent)
    if not families:
        return f"{start}: it isn't the config of a transformers model."
    start += f". Its weights are named as in {', '.join(families)}"
    named = [name for name in families if name in path.parent.name.lower()]
    likely = families[0] if len(families) == 1 else max(named, key=len, default=None)
    if likely is None:
        return f'{start}: add the right one, as in "model_type": "{families[0]}".'
    code = (
        f"import json; path = {str(path.absolute())!r}; config = json.load(open(path)); "
        f"config['model_type'] = {likely!r}; json.dump(config, open(path, 'w'), indent=2)"
    )
    return f"{start}: if it is {likely}, add that with: python -c {shlex.quote(code)}"


def _families_by_names(folder: Path) -> list[str]:
    """The families whose first block is named in a weight file; files are searched, not loaded.

    The names are at the start of a file, in safetensors as in pickled files. Saved without its
    head, a model lacks the first part of each name.
    """
    patterns = ("*.safetensors", *PICKLE_PATTERNS)
    starts = []
    for file in (path for pattern in patterns for path in folder.glob(pattern)):
        with file.open("rb") as opened:
            starts.append(opened.read(NAMES_BYTES))
    for cut in (0, 1):
        found = set()
        for family, row in ANATOMIES.items():
            name = ".".join([*row.blocks.split(".")[cut:], "0."])
            pattern = re.compile(rb"(?<![\w.])" + re.escape(name).encode())
            if any(pattern.search(start) for start in starts):
                found.add(family)
        if found:
            return sorted(found)
    return []


def _no_weights(folder: Path, absent: list[str]) -> BadModel:
    pickles = sorted(p.name for pattern in PICKLE_PATTERNS for p in folder.glob(pattern))
    if pickles:
        return BadModel(
            f"{folder} has its weights as pickle ({pickles[0]!r}), which can run any code when "
            f"loaded, so Cutaway refuses it. Convert it once; this loads tensors only, and writes "
            f"{folder.name}-safetensors beside it: {_conversion_command(folder)}"
        )
    what = ", ".join(absent[:3]) or "model.safetensors"
    return BadModel(f"{folder} has no weights: {what} is missing. Download the checkpoint again.")


def _conversion_command(folder: Path) -> str:
    """A command that writes a copy of the checkpoint with safetensors, for the user's shell."""
    config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    row = ANATOMIES.get(str(config.get("model_type")))
    made = str(next(iter(config.get("architectures") or ()), ""))
    causal = made.endswith(("ForCausalLM", "LMHeadModel")) or (row and row.kind == "causal")
    auto = "AutoModelForCausalLM" if causal else "AutoModelForMaskedLM"
    # The class it was saved as, or with a head if there is one: the assertion makes up no weights.
    model = f"getattr(t, {made!r}, t.{auto})" if made.isidentifier() else f"t.{auto}"
    steps = [
        "load = lambda c: c.from_pretrained(old, weights_only=True, output_loading_info=True)",
        f"m, i = load({model})",
        *([] if made else ['m, i = load(t.AutoModel) if i["missing_keys"] else (m, i)']),
        'assert not i["missing_keys"], i["missing_keys"]',
        "m.save_pretrained(new)",
    ]
    if any((folder / name).is_file() for name in TOKENIZER_FILES):
        auto = "BertTokenizer" if is_wordpiece_folder(folder) else "AutoTokenizer"
        options = "".join(f", {name}={value}" for name, value in letter_case(folder).items())
        steps.append(f"t.{auto}.from_pretrained(old{options}).save_pretrained(new)")
    old = str(folder.absolute())
    code = f"import transformers as t; old = {old!r}; new = old + '-safetensors'; "
    return f"python -c {shlex.quote(code + '; '.join(steps))}"
