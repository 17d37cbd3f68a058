"""Import of matrices saved by the reference code: one tensor file per pair of layers, `i_j`.

No file is ever unpickled. A file of `torch.save` is read by torch's restricted loader. A plain
pickle, which the reference writes, is only parsed: its storage and shape are read from the opcode
stream, and nothing that the stream would call is called. The reference multiplies from the left,
so its matrices are transposed.
"""

import io
import math
import pickletools
import re
from pathlib import Path
from pickle import UnpicklingError  # safe: only the exception class
from typing import Any

import torch
from torch import Tensor

from cutaway.core.errors import BadData, Mismatch, Missing
from cutaway.methods.shortcut.maps import ShortcutMaps, load_maps, save_maps
from cutaway.methods.shortcut.maths.fit import Shortcut
from cutaway.models.lm import LM, model_facts

SUFFIX_PATTERN = r"(\.(pt|pth|bin|pickle|pkl))?"
MAP_FILE_PATTERN = re.compile(rf"(\d+)_(\d+){SUFFIX_PATTERN}")
PART_FILE_PATTERN = re.compile(rf"p(\d+)_(\d)_(\d){SUFFIX_PATTERN}")
REFERENCE_PARTS = {1: "norm1", 2: "attn", 4: "norm2", 5: "mlp"}
"""The reference's numbers of the parts of a block; 3 and 6 are additions, which need no map."""

VALUE_OPCODES = {"BINBYTES", "BINBYTES8", "SHORT_BINBYTES", "BININT", "BININT1", "BININT2", "LONG1"}
"""Pickle opcodes that carry bytes and numbers, not memo indices."""
TENSOR_GLOBALS = {
    *("torch._utils", "_rebuild_tensor_v2", "torch.storage", "_load_from_bytes"),
    *("collections", "OrderedDict"),
}
"""The only names in the pickle of a tensor."""


def import_reference_maps(folder: Path, lm: LM, out: Path) -> ShortcutMaps:
    """All `i_j` files of a folder, and `pi_a_b` files of parts, as maps of this model in `out`."""
    names = {path: path.name for path in sorted(folder.glob("*"))}
    files = {
        path: match for path, name in names.items() if (match := MAP_FILE_PATTERN.fullmatch(name))
    }
    if not files:
        raise Missing(
            f"No matrices in {str(folder)!r}: files of the reference are called i_j, such as "
            "3_12.pickle."
        )
    fitted = {}
    for path, match in files.items():
        source, target = int(match[1]), int(match[2])
        if not 0 <= source < target <= lm.layers:
            raise Mismatch(
                f"{path.name!r} is a map from layer {source} to {target}; {lm.name!r} has layers "
                f"0..{lm.layers}."
            )
        fitted["mat", source, target] = _read_map(path, lm.width)
    parts = {}
    for path, name in names.items():
        if (match := PART_FILE_PATTERN.fullmatch(name)) and int(match[3]) in REFERENCE_PARTS:
            parts[_part_name(path, match, lm)] = _read_map(path, lm.width)
    save_maps(
        out, fitted, parts, _imported_metadata(folder, lm, len(files) + len(parts), bool(parts))
    )
    return load_maps(out, lm)


def _imported_metadata(folder: Path, lm: LM, files: int, parts: bool) -> dict[str, Any]:
    return {
        "model": model_facts(lm) | {"tokenizer_digest": lm.tokenizer_digest, "dtype": lm.dtype},
        "text": {"name": str(folder.name), "digest": "", "fitted_rows": 0, "held_out_rows": 0},
        "sample": {"held_out": 0.25, "seed": 0},
        "pairs": "imported",
        "parts": parts,
        "notes": [f"Imported from {files} tensor files."],
    }


def _part_name(path: Path, match: re.Match[str], lm: LM) -> str:
    block = int(match[1]) + 1
    if block > lm.layers:
        raise Mismatch(
            f"{path.name!r} belongs to block {block}; {lm.name!r} has blocks 1..{lm.layers}."
        )
    return f"{block}.{REFERENCE_PARTS[int(match[3])]}"


def _read_map(path: Path, width: int) -> Shortcut:
    try:
        matrix = read_tensor(path)
    except (UnpicklingError, RuntimeError, EOFError, ValueError, IndexError) as error:
        # torch's own message suggests to unpickle anyway, which is never done here.
        unsafe = "it contains more than a tensor, and pickled code is never run"
        own = str(error).splitlines()[0].rstrip(".")
        why = unsafe if isinstance(error, UnpicklingError) else own
        raise BadData(
            f"{str(path)!r} is not a plain tensor file: {why}. Save the matrix again with "
            "torch.save(tensor, path)."
        ) from None
    if not isinstance(matrix, Tensor) or tuple(matrix.shape) != (width, width):
        shape = tuple(matrix.shape) if isinstance(matrix, Tensor) else type(matrix).__name__
        raise Mismatch(f"{str(path)!r} contains {shape}, expected a ({width}, {width}) matrix.")
    return Shortcut((matrix.float().T.contiguous(),))


def read_tensor(path: Path) -> Any:
    """The tensor in a file of `torch.save` or `pickle.dump`."""
    content = path.read_bytes()
    if b"_load_from_bytes" in content[:400]:
        return _tensor_in_pickle(content)
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def _tensor_in_pickle(content: bytes) -> Tensor:
    """The tensor in a pickle: its storage as bytes, then offset, two sizes, two strides."""
    steps = [(op.name, arg) for op, arg, _ in pickletools.genops(content)]
    words = {word for _, arg in steps if isinstance(arg, str) for word in arg.split()}
    values: list[Any] = [arg for name, arg in steps if name in VALUE_OPCODES]
    if words != TENSOR_GLOBALS or [type(arg) for arg in values] != [bytes, *[int] * 5]:
        raise ValueError("it contains something other than one matrix.")
    raw, offset, *shape = values
    saved = torch.load(io.BytesIO(raw), map_location="cpu", weights_only=True)
    size, stride = shape[:2], shape[2:]
    flat = torch.tensor([], dtype=saved.dtype).set_(saved)
    if min(offset, *shape) < 0 or offset + math.prod(size) > len(flat):
        raise ValueError(f"a matrix of {size} does not fit into {len(flat)} numbers.")
    return torch.as_strided(flat, size, stride, offset)
