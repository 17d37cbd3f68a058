"""Matrices that the reference saved: one tensor file per pair of layers, called `i_j`.

They are read by torch's restricted loader, which builds tensors and nothing else: a file that
would run code is refused. The reference multiplies from the left, so its matrices are turned.
"""

import re
from pathlib import Path
from pickle import UnpicklingError  # safe: the error alone

import torch
from torch import Tensor

from cutaway.core.errors import BadData, Mismatch, Missing
from cutaway.methods.shortcut.fit import Shortcut
from cutaway.models.lm import LM
from cutaway.run.shortcut.maps import Maps, load_maps, model_facts, save_maps

NAME = re.compile(r"(\d+)_(\d+)(\.(pt|pth|bin|pickle|pkl))?")


def import_maps(folder: Path, lm: LM, out: Path) -> Maps:
    """All `i_j` files of a folder as maps of this model, written to `out`."""
    found = {path: NAME.fullmatch(path.name) for path in sorted(folder.glob("*"))}
    files = {path: match for path, match in found.items() if match is not None}
    if not files:
        raise Missing(
            f"No matrices in {str(folder)!r}: the reference calls them i_j, such as 3_12.pt."
        )
    fitted = {}
    for path, match in files.items():
        source, target = int(match[1]), int(match[2])
        if not 0 <= source < target <= lm.layers:
            raise Mismatch(
                f"{path.name!r} goes from layer {source} to {target}; {lm.name!r} has layers "
                f"0..{lm.layers}."
            )
        fitted["mat", source, target] = Shortcut((_matrix(path, lm.width).T.contiguous(),))
    meta = {
        "model": model_facts(lm) | {"tokenizer_digest": lm.tokenizer_digest, "dtype": lm.dtype},
        "text": {"name": str(folder.name), "digest": "", "fitted_rows": 0, "held_out_rows": 0},
        "sample": {"held_out": 0.25, "seed": 0},
        "pairs": "imported",
        "parts": False,
        "notes": [f"Imported from {len(files)} tensor files."],
    }
    save_maps(out, fitted, {}, meta)
    return load_maps(out, lm)


def _matrix(path: Path, width: int) -> Tensor:
    try:
        matrix = torch.load(path, map_location="cpu", weights_only=True)
    except (UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise BadData(
            f"{str(path)!r} is no plain tensor file: {str(error).splitlines()[0]} Save the matrix "
            "again with torch.save(tensor, path)."
        ) from None
    if not isinstance(matrix, Tensor) or tuple(matrix.shape) != (width, width):
        shape = tuple(matrix.shape) if isinstance(matrix, Tensor) else type(matrix).__name__
        raise Mismatch(f"{str(path)!r} holds {shape}, expected a ({width}, {width}) matrix.")
    return matrix.float()
