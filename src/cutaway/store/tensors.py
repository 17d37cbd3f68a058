"""Write safetensors files in one pass, and read them memory-mapped.

Reading uses the safetensors library. Writing is done here (8 bytes of length, a JSON header, the
data), because a shard consists of many small blocks: the library needs them concatenated, uses
its own temporary files, and hides the system's error number when the disk is full.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.core.errors import BadData, Corrupt, Mismatch
from cutaway.core.lookup import lookup

if TYPE_CHECKING:
    from torch import Tensor

# torch dtype -> name in the file.
DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}

# First bytes of files that run code when loaded: torch's zip archives, pickles.
_PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


@dataclass
class TensorLayout:
    """The layout of a file, and the checksums of its tensors after `chunks` was consumed."""

    blocks: Mapping[str, Sequence["Tensor"]]
    sha256: dict[str, str] = field(default_factory=dict)

    def entries(self) -> dict[str, dict[str, Any]]:
        """Type, shape and offsets of each tensor, in file order."""
        entries: dict[str, dict[str, Any]] = {}
        start = 0
        for name in self._order():
            blocks = self.blocks[name]
            stop = start + sum(block.nbytes for block in blocks)
            entries[name] = {
                "dtype": lookup(DTYPES, dtype_name(blocks[0]), kind="tensor type"),
                "shape": _joined_shape(blocks),
                "data_offsets": [start, stop],
            }
            start = stop
        return entries

    def chunks(self) -> Iterator[bytes | memoryview]:
        """The file's bytes in chunks, without copying the data."""
        header = json.dumps(self.entries(), separators=(",", ":")).encode()
        # Padded so that the data is aligned to 8 bytes.
        header += b" " * (-len(header) % 8)
        yield len(header).to_bytes(8, "little") + header
        for name in self._order():
            total = hashlib.sha256()
            for block in self.blocks[name]:
                raw = raw_bytes(block)
                total.update(raw)
                yield raw
            self.sha256[name] = total.hexdigest()

    def _order(self) -> list[str]:
        """Largest item size first, so that each tensor is aligned to its item size."""
        return sorted(self.blocks, key=lambda name: (-self.blocks[name][0].itemsize, name))


def _joined_shape(blocks: Sequence["Tensor"]) -> list[int]:
    """The shape of the concatenated blocks; a single block keeps its shape."""
    if len(blocks) == 1:
        return list(blocks[0].shape)
    return [sum(len(block) for block in blocks), *blocks[0].shape[1:]]


def check_same_form(name: str, blocks: Sequence["Tensor"]) -> None:
    """Raise Mismatch unless the blocks agree in type and in all but the first axis."""
    forms = {(dtype_name(block), tuple(block.shape[1:])) for block in blocks}
    if len(forms) > 1:
        raise Mismatch(f"Column {name!r} has several types or shapes: {sorted(forms)!r}. Use one.")


def dtype_name(tensor: "Tensor") -> str:
    """`float32` for torch.float32."""
    return str(tensor.dtype).removeprefix("torch.")


def raw_bytes(tensor: "Tensor") -> memoryview:
    """The tensor's memory; not copied if it is contiguous and on the CPU."""
    import torch

    flat = tensor.detach().to("cpu").contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data


def refuse_pickle(path: Path) -> None:
    """Raise BadData for pickles and torch archives, which can run code when loaded."""
    with path.open("rb") as handle:
        head = handle.read(8)
    if head.startswith(_PICKLES) and int.from_bytes(head, "little") > path.stat().st_size:
        raise BadData(
            f"{str(path)!r} is a pickle, which can run any code when it is loaded. Only "
            "safetensors files are read: convert it with safetensors.torch.save_file."
        )


def tensor_names(path: Path) -> tuple[str, ...]:
    """The tensor names in a safetensors file; Corrupt if its header is invalid."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return tuple(file.keys())
    except (SafetensorError, OSError, ValueError) as error:
        raise Corrupt(f"{str(path)!r} is truncated or damaged: {error}.") from None


def map_tensor(path: Path, name: str) -> "Tensor":
    """One tensor as a memory-mapped view of the file."""
    return map_tensors(path, [name])[name]


def map_tensors(path: Path, names: Sequence[str]) -> "dict[str, Tensor]":
    """Some tensors as memory-mapped views of the file."""
    from safetensors import SafetensorError, safe_open

    name = ""
    try:
        with safe_open(path, framework="pt") as file:
            found: dict[str, Tensor] = {}
            for name in names:
                found[name] = file.get_tensor(name)
            return found
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise Corrupt(f"{str(path)!r} has no intact tensor {name!r}: {error}.") from None
