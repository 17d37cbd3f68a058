"""A copy of a checkpoint folder in which a few weights are changed, in place in its files.

Everything else stays as it is: precision, shards, file names, config, tokenizer. Changing the
weights back gives files with the same bytes.
"""

import json
import math
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.methods.graft.maths.patch import Patch
from cutaway.models.checkpoint import PICKLE_PATTERNS, need_weights
from cutaway.recipe.output import OWNER_FILE

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
}  # fmt: skip
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
# Other copies of the weights, and notes about the files as they were.
NOT_COPIED = (
    *PICKLE_PATTERNS, "*.safetensors", "*.index.json", "*.gguf", "*.onnx", "*.h5", "*.msgpack",
    ".*", OWNER_FILE, "weights.sha256", "notes.json",
)  # fmt: skip


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor is in a checkpoint's files."""

    file: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    """The position of its first byte in the file."""

    def bits(self, file: Path, mode: Any = "r") -> NDArray[Any]:
        """Its memory in the file as integers of the same width."""
        kind = f"<i{self.dtype.itemsize}"
        return np.memmap(file, kind, mode, self.start, (math.prod(self.shape),))


@dataclass(frozen=True, eq=False)
class Edit:
    """New values for some weights of one stored tensor."""

    tensor: StoredTensor
    indices: NDArray[np.int64]
    old: NDArray[Any]
    new: NDArray[Any]

    def applies(self) -> bool:
        """Whether the file has the old values, bit for bit."""
        return bool(np.array_equal(self.tensor.bits(self.tensor.file)[self.indices], self.old))

    def write(self, folder: Path) -> None:
        """Write the new values to the file of the same name in another folder."""
        memory: Any = self.tensor.bits(folder / self.tensor.file.name, "r+")
        memory[self.indices] = self.new
        memory.flush()


def copy_patched(module: Any, source: Path, target: Path, patch: Patch) -> bool:
    """Copy a checkpoint with the patch applied; False, and no copy, if a weight isn't found.

    A weight is found if the files have its tensor under the name in the module, or without the
    module's prefix, with the patch's values before; tied tensors are changed wherever they are.
    """
    files = need_weights(source)
    edits = _plan(module, stored_tensors(files), patch)
    if edits is None or not all(edit.applies() for edit in edits):
        return False
    target.mkdir(parents=True)
    index = [] if len(files) == 1 else source.glob("*.safetensors.index.json")
    for file in (*_other_files(source), *files, *index):
        shutil.copyfile(file, target / file.name)
    for edit in edits:
        edit.write(target)
    return True


def stored_tensors(files: Iterable[Path]) -> dict[str, StoredTensor]:
    """Every floating-point tensor in safetensors files by its name there."""
    found = {}
    for path in files:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
        for name, row in header.items():
            if row.get("dtype") in DTYPES:
                start = 8 + size + row["data_offsets"][0]
                shape = tuple(row["shape"])
                found[name] = StoredTensor(path, DTYPES[row["dtype"]], shape, start)
    return found


def _plan(module: Any, stored: Mapping[str, StoredTensor], patch: Patch) -> list[Edit] | None:
    """The edits of all stored tensors that the patch changes; None if one isn't stored."""
    params = dict(module.named_parameters(remove_duplicate=False))
    names: dict[int, list[str]] = {}
    for name, value in params.items():
        names.setdefault(value.data_ptr(), []).append(name)
    edits = []
    for name in patch.mask.indices:
        spellings = [s for n in names[params[name].data_ptr()] for s in _spellings(module, n)]
        tensors = [stored[s] for s in dict.fromkeys(spellings) if s in stored]
        if not tensors or any(one.shape != tuple(params[name].shape) for one in tensors):
            return None
        edits += [_edit(one, patch, name) for one in tensors]
    return edits


def _spellings(module: Any, name: str) -> tuple[str, str]:
    """A weight's name in the module, and in a checkpoint of its body alone."""
    return name, name.removeprefix(f"{getattr(module, 'base_model_prefix', '')}.")


def _edit(tensor: StoredTensor, patch: Patch, name: str) -> Edit:
    def bits(values: Tensor) -> NDArray[Any]:
        rounded = values.detach().cpu().to(tensor.dtype).contiguous()
        return rounded.view(BITS[tensor.dtype.itemsize]).numpy()

    indices = patch.mask.indices[name].cpu().numpy()
    return Edit(tensor, indices, bits(patch.before[name]), bits(patch.after[name]))


def _other_files(folder: Path) -> list[Path]:
    """The files of a checkpoint that don't have weights: config, tokenizer, licence."""
    return [
        path
        for path in sorted(folder.iterdir())
        if path.is_file() and not any(fnmatchcase(path.name, pattern) for pattern in NOT_COPIED)
    ]
