"""A checkpoint folder, looked at before anything in it is loaded."""

import json
import math
from pathlib import Path
from typing import Any

import psutil
from safetensors import SafetensorError, safe_open

from cutaway.core.errors import BadModel, Missing, NoRoom

PICKLE_PATTERNS = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.pickle", "*.ckpt")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.txt", "vocab.json", "spiece.model",
              "sentencepiece.bpe.model", "bpe.codes")  # fmt: skip


def need_config(folder: Path) -> dict[str, Any]:
    """The checkpoint's config; BadModel says what the folder is instead."""
    path = folder / "config.json"
    if not path.is_file():
        raise BadModel(_no_config(folder))
    config = read_json(path)
    if not isinstance(config.get("model_type"), str):
        raise BadModel(f"{path} names no model_type: it isn't the config of a transformers model.")
    if (folder / "adapter_config.json").is_file():
        raise BadModel(
            f"{folder} holds a whole model and an adapter (adapter_config.json), and transformers "
            "would put the one on the other. Keep them in two folders, and name both: BASE+ADAPTER."
        )
    if config.get("transformers_weights") is not None:
        raise BadModel(
            f"{path} names other weights ({config['transformers_weights']!r}) in "
            "transformers_weights. Call that file model.safetensors and take the entry out."
        )
    return config


def need_weights(folder: Path, stem: str = "model") -> list[Path]:
    """The safetensors files of a checkpoint, each whole; BadModel or Missing otherwise."""
    index, single = folder / f"{stem}.safetensors.index.json", folder / f"{stem}.safetensors"
    # As transformers does it: the single file first, whatever an old index beside it says.
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
    """Whether there is such a file; a name that no disk could hold is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _shards(index: Path) -> list[str]:
    """The files that an index names; BadModel for one that leads out of its folder."""
    named = read_json(index).get("weight_map")
    shards = sorted({str(s) for s in named.values()}) if isinstance(named, dict) else []
    for shard in shards:
        if Path(shard).name != shard:
            raise BadModel(f"{index} names {shard!r}: a shard must lie beside its index.")
    return shards


def need_memory(files: list[Path], itemsize: int) -> None:
    """NoRoom unless the weights, at this many bytes each, fit into the memory that is free."""
    need, free = count_weights(files) * itemsize, psutil.virtual_memory().available
    if need > free:
        raise NoRoom(
            f"The weights take {need / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free. Choose "
            "a smaller dtype (bfloat16), another device or a smaller model."
        )


def count_weights(files: list[Path]) -> int:
    """How many numbers the files hold, from their headers."""
    return sum(math.prod(shape) for shape in tensor_shapes(files))


def tensor_shapes(files: list[Path]) -> list[list[int]]:
    """The shape of every tensor, from the headers."""
    shapes = []
    for file in files:
        with safe_open(file, framework="pt") as tensors:
            shapes += [tensors.get_slice(name).get_shape() for name in list(tensors.keys())]
    return shapes


def need_tokenizer(folder: Path) -> None:
    """Missing unless the folder has a tokenizer."""
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise Missing(
            f"{folder} has no tokenizer (looked for {', '.join(TOKENIZER_FILES[:4])}, ...). Save it "
            "beside the weights: AutoTokenizer.from_pretrained(BASE).save_pretrained(FOLDER)."
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
    """BadModel unless the header is sound and the file as long as it says; loads nothing."""
    try:
        with safe_open(file, framework="pt") as tensors:
            list(tensors.keys())
    except (SafetensorError, OSError) as error:
        raise BadModel(
            f"{file} is not a whole safetensors file ({error}). It is cut short, corrupt or "
            "something else under that name: download or convert it again."
        ) from None


def _no_config(folder: Path) -> str:
    adapter = folder / "adapter_config.json"
    if adapter.is_file():
        base = read_json(adapter).get("base_model_name_or_path") or "BASE"
        return f"{folder} is a PEFT adapter, not a model: open it as '{base}+{folder}'."
    inside = sorted(p.parent.name for p in folder.glob("*/config.json"))
    hint = f" A folder inside has one: {inside[0]!r}." if inside else ""
    return f"{folder} has no config.json: it isn't a checkpoint in Hugging Face layout.{hint}"


def _no_weights(folder: Path, absent: list[str]) -> BadModel:
    pickles = sorted(p.name for pattern in PICKLE_PATTERNS for p in folder.glob(pattern))
    if pickles:
        return BadModel(
            f"{folder} holds its weights as pickle ({pickles[0]!r}), which can run any code when "
            "loaded, so Cutaway doesn't. If you trust it, convert it once in plain transformers: "
            "AutoModel....from_pretrained(FOLDER).save_pretrained(NEW_FOLDER), and open NEW_FOLDER."
        )
    what = ", ".join(absent[:3]) or "model.safetensors"
    return BadModel(f"{folder} has no weights: {what} is missing. Download the checkpoint again.")
