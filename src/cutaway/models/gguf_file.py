"""GGUF files: dequantised once into a plain checkpoint in `<home>/models/`, which is then opened
like any other folder.

The folder's name and the model's digest are made from the sha256 of the file. Dequantised values
need 24 bits, so they are stored in float32, without loss. Some settings of the tokenizer that the
file has and transformers ignores are applied: how text is split, whether a start token is added.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from cutaway.console import quiet_transformers
from cutaway.core.digest import digest_json
from cutaway.core.errors import BadModel, CutawayError, Missing, NoRoom
from cutaway.home import home
from cutaway.models.digests import file_digest
from cutaway.models.gguf_header import GGUFHeader, read_gguf_header
from cutaway.models.plausible_config import need_plausible_config

CONVERSION_VERSION = 1
"""Increased when the conversion changes; checkpoints of older versions are not used."""

WEIGHTS_FILE, DIGEST_FILE, NOTES_FILE = "model.safetensors", "weights.sha256", "notes.json"
TEMP_PREFIX = ".making-"
STALE_SECONDS = 3600
"""Age at which an unfinished conversion counts as abandoned."""
BYTES_PER_WEIGHT = 4
SPARE_BYTES = 100_000_000
"""Disk space besides the weights: the tokenizer, and what others write meanwhile."""

DIGIT_SPLITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"})
"""Values of `tokenizer.ggml.pre` where numbers are split into digits, then as GPT-2 splits."""
GPT2_SPLITS = frozenset({"gpt-2", "phi-2", "mpt", "olmo", "jais", "roberta-bpe"})
"""Values of `tokenizer.ggml.pre` where text is split as GPT-2 does it."""
START_TOKEN_SPLITS = frozenset({"llama3", "llama-v3", "llama-bpe"})
"""Values of `tokenizer.ggml.pre` with a start token unless the file says otherwise."""


def find_gguf_file(path: Path) -> Path | None:
    """The GGUF file that a path means: itself, or the only weights of a folder."""
    if path.is_file():
        return path if path.suffix.lower() == ".gguf" else None
    files = sorted(file for file in path.glob("*") if file.suffix.lower() == ".gguf")
    if not files or any(path.glob("model*.safetensors*")):
        return None
    if len(files) > 1:
        names = ", ".join(repr(file.name) for file in files[:8])
        raise BadModel(
            f"{path} has {len(files)} GGUF files: {names}. Choose one by its path: "
            f"{path / files[0].name}"
        )
    return files[0]


def conversion_digest(sha256: str) -> str:
    """The digest of a converted model's weights: of the file and of the conversion."""
    return digest_json({"gguf": sha256, "conversion": CONVERSION_VERSION})


def converted_folder(label: str, sha256: str) -> Path:
    """Where the converted checkpoint of a file is."""
    return home() / "models" / f"{label}-{conversion_digest(sha256)[:12]}"


def is_converted(folder: Path) -> bool:
    """Whether the converted model is there, with the weights that were written."""
    if not (folder / "config.json").is_file():
        return False
    try:
        return (folder / DIGEST_FILE).read_text() == file_digest(folder / WEIGHTS_FILE)
    except FileNotFoundError:
        # Converted by a version that wrote no digest.
        return (folder / WEIGHTS_FILE).is_file()
    except (OSError, ValueError):
        return False


def conversion_notes(folder: Path) -> tuple[str, ...]:
    """What the user should know about the conversion."""
    try:
        return tuple(map(str, json.loads((folder / NOTES_FILE).read_text(encoding="utf-8"))))
    except (OSError, ValueError):
        return ()


def convert_gguf(source: Path, sha256: str, folder: Path) -> None:
    """Convert into a temporary folder and rename it, so that `folder` is always complete."""
    header = need_convertible(source)
    _need_writable(folder.parent, header.parameters * BYTES_PER_WEIGHT)
    _remove_stale(folder.parent)
    work = Path(tempfile.mkdtemp(dir=folder.parent, prefix=TEMP_PREFIX))
    try:
        _convert(source, work, header)
        if file_digest(source) != sha256:
            raise BadModel(f"{source} changed while it was read. Open it again.")
        _write_digest(work)
        # Another process may have finished first.
        if not is_converted(folder):
            shutil.rmtree(folder, ignore_errors=True)
            work.rename(folder)
    except OSError as error:
        if not is_converted(folder):
            raise NoRoom(f"Can't write the converted model to {folder}: {error}.") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def need_convertible(source: Path) -> GGUFHeader:
    """The header of a file that can be converted; BadModel or NoRoom says why one can't."""
    header = read_gguf_header(source)
    parts = header.number("split.count") or 1
    if parts > 1:
        raise BadModel(
            f"{source} is one of {parts} parts of a model. Join them with: "
            f"llama-gguf-split --merge {source.name} joined.gguf"
        )
    known = _known_architectures()
    if header.architecture.replace("-", "_") not in known:
        raise BadModel(
            f"{source} has the architecture {header.architecture!r}, which transformers can't read "
            f"from GGUF. Known: {', '.join(sorted(known))}."
        )
    if not header.tokens:
        raise Missing(
            f"{source} has no tokenizer (tokenizer.ggml.tokens is missing or empty). Use a GGUF "
            "file with its vocabulary, or the original checkpoint."
        )
    need, free = header.parameters * BYTES_PER_WEIGHT, psutil.virtual_memory().available
    if need > free:
        raise NoRoom(
            f"{source} takes {need / 1e9:.1f} GB of memory to convert, {free / 1e9:.1f} GB are "
            "free. Use a smaller model."
        )
    return header


def _known_architectures() -> set[str]:
    """llama.cpp's names of the architectures that transformers converts."""
    from transformers.integrations.ggml import GGUF_CONFIG_MAPPING
    from transformers.integrations.gguf.gguf_config_mapping import GGUF_CONFIG_ARCHS

    joined = {name.replace("_moe", "moe") for name in GGUF_CONFIG_MAPPING if name.endswith("_moe")}
    return {*GGUF_CONFIG_MAPPING, *joined, *GGUF_CONFIG_ARCHS} - {"general", "tokenizer"}


def _write_digest(work: Path) -> None:
    """Write the digest of the weights beside them, and flush all files to disk."""
    (work / DIGEST_FILE).write_text(file_digest(work / WEIGHTS_FILE))
    for file in work.iterdir():
        with file.open("rb") as handle:
            os.fsync(handle.fileno())


def _remove_stale(parent: Path) -> None:
    """Remove the files of killed conversions: half a gigabyte each."""
    for left in parent.glob(f"{TEMP_PREFIX}*"):
        if time.time() - left.stat().st_mtime > STALE_SECONDS:
            shutil.rmtree(left, ignore_errors=True)


def _need_writable(parent: Path, weights: int) -> None:
    need = weights + SPARE_BYTES
    try:
        parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(parent).free
    except OSError as error:
        raise NoRoom(f"Can't make {parent}: {error}. Set CUTAWAY_HOME elsewhere.") from None
    if free < need or not os.access(parent, os.W_OK):
        raise NoRoom(
            f"{parent} needs to be writable with {need / 1e9:.1f} GB free for the converted model, "
            f"{free / 1e9:.1f} GB are free. Free some space, or set CUTAWAY_HOME to another folder."
        )


def _convert(source: Path, folder: Path, header: GGUFHeader) -> None:
    """Write weights, config and tokenizer of the GGUF file as a checkpoint."""
    try:
        with quiet_transformers(), _without_bar():
            tokenizer, notes = _tokenizer(source, header)
            tokenizer.save_pretrained(folder)
            _dequantised_model(source, header).save_pretrained(folder)
    except (CutawayError, OSError):
        raise
    except Exception as error:  # transformers raises whatever an odd file leads to
        reason = " ".join(str(error).split())[:300]
        raise BadModel(
            f"{source} can't be converted: {type(error).__name__}: {reason or 'no reason given'}"
        ) from None
    (folder / NOTES_FILE).write_text(json.dumps(notes), encoding="utf-8")


@contextmanager
def _without_bar() -> Iterator[None]:
    """No progress bar of the conversion: it isn't one that transformers' settings turn off."""
    from transformers import modeling_gguf_pytorch_utils as theirs

    library: Any = theirs
    bar, library.tqdm = library.tqdm, lambda tensors, **_: tensors
    try:
        yield
    finally:
        library.tqdm = bar


def _dequantised_model(source: Path, header: GGUFHeader) -> Any:
    """The dequantised model, its config without the quantisation."""
    import torch
    from transformers import AutoConfig
    from transformers import AutoModelForCausalLM as Auto

    auto: Any = Auto
    config = AutoConfig.from_pretrained(source.parent, gguf_file=source.name)
    if config.is_encoder_decoder:
        raise BadModel(
            f"{source} is an encoder-decoder ({config.model_type}); Cutaway opens causal and "
            "masked language models."
        )
    need_plausible_config(str(source), config, "causal", list(header.shapes.values()))
    loaded, info = auto.from_pretrained(
        source.parent, gguf_file=source.name, dtype=torch.float32, output_loading_info=True
    )
    missing = sorted(info["missing_keys"])
    if missing:
        raise BadModel(
            f"{source} lacks {len(missing)} weights of the model (first: {missing[0]!r}): the file "
            "is incomplete, or of another architecture than it says."
        )
    config = type(loaded.config).from_dict(
        {k: v for k, v in loaded.config.to_dict().items() if k != "quantization_config"}
    )
    with torch.device("meta"):
        plain = auto.from_config(config)
    plain.load_state_dict(loaded.state_dict(), assign=True)
    plain.tie_weights()
    return plain


def _tokenizer(source: Path, header: GGUFHeader) -> tuple[Any, list[str]]:
    """The file's tokenizer, with the settings that transformers ignores, and notes on them."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    notes = _split_text(tokenizer, header)
    notes += _add_special_tokens(tokenizer, header)
    tokenizer.model_max_length = header.number(f"{header.architecture}.context_length") or (
        tokenizer.model_max_length
    )
    return tokenizer, notes


def _split_text(tokenizer: Any, header: GGUFHeader) -> list[str]:
    """Split text before merging as `tokenizer.ggml.pre` says; a note if that isn't known."""
    from tokenizers import pre_tokenizers
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    name = header.text("tokenizer.ggml.pre")
    if header.text("tokenizer.ggml.model") != "gpt2" or name in GGUF_PRE_TOKENIZER_SPLITS:
        return []
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name in DIGIT_SPLITS:
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    if name in GPT2_SPLITS | DIGIT_SPLITS:
        return []
    return [
        f"The file splits text by the rule {name or 'default'!r}, which isn't known here: text is "
        "split as GPT-2 does it, so some tokens may differ from those of the original tokenizer."
    ]


def _add_special_tokens(tokenizer: Any, header: GGUFHeader) -> list[str]:
    """Add start and end token to a text as the file says; a note if transformers wouldn't."""
    from tokenizers import processors

    sentencepiece = header.text("tokenizer.ggml.model") == "llama"
    usual = sentencepiece or header.text("tokenizer.ggml.pre") in START_TOKEN_SPLITS
    wanted = {
        name: bool(header.metadata.get(f"tokenizer.ggml.add_{name}_token", default))
        and getattr(tokenizer, f"{name}_token") is not None
        for name, default in (("bos", usual), ("eos", False))
    }
    ids = tokenizer("a", return_attention_mask=False)["input_ids"]
    now = {"bos": ids[:1] == [tokenizer.bos_token_id], "eos": ids[-1:] == [tokenizer.eos_token_id]}
    if wanted == now:
        return []
    start = [tokenizer.bos_token] * wanted["bos"]
    end = [tokenizer.eos_token] * wanted["eos"]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=[*start, "$A", *end],
        pair=[*start, "$A", *end, *start, "$B:1", *end],
        special_tokens=[(name, tokenizer.convert_tokens_to_ids(name)) for name in {*start, *end}],
    )
    added = " and ".join(map(repr, start + end)) or "nothing"
    return [f"The file says that {added} is added to a text; transformers' own conversion differs."]
