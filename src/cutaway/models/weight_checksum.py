"""Who weights are as they stand in memory: a model that was changed in place is another model."""

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version

import torch
from torch import Tensor, nn

from cutaway.core.digest import digest_json
from cutaway.models.lm import LM
from cutaway.models.memo import read_memo, write_memo


def checksum(values: Mapping[str, Tensor]) -> str:
    """The identity of tensors as they stand in memory: every name, shape, type and bit."""
    # hashlib lets other threads run, so several tensors are summed at once.
    with ThreadPoolExecutor() as pool:
        sums = pool.map(_sha256, values.values())
        return digest_json(
            {
                name: [list(value.shape), str(value.dtype).removeprefix("torch."), found]
                for (name, value), found in zip(values.items(), sums, strict=True)
            }
        )


def _sha256(value: Tensor) -> str:
    flat = value.detach().to("cpu").contiguous().reshape(-1)
    return hashlib.sha256(flat.view(torch.uint8).numpy().data).hexdigest()


def module_checksum(module: nn.Module) -> str:
    """The checksum of all that a module was loaded with: weights, tied ones once, and buffers."""
    every = dict(module.named_parameters(remove_duplicate=False))
    kept = {
        name: value
        for name, value in module.state_dict().items()
        if name not in every and isinstance(value, Tensor)
    }
    return checksum(dict(module.named_parameters()) | kept)


def with_checksum(lm: LM, *, same_each_time: bool) -> LM:
    """The model with a print of its weights, by which `LM.refresh_digest` sees whether they changed.

    `same_each_time`: opening it gives the same bits again (no adapter is merged, no head is drawn),
    so the print is made once and remembered.
    """
    versions = [version("torch"), version("transformers")]
    key = digest_json([lm.digest, lm.dtype, *versions])
    found = read_memo("prints", key) if same_each_time else None
    if not isinstance(found, str):
        found = module_checksum(lm.module)
        if same_each_time:
            write_memo("prints", key, found)
    return replace(lm, opened=(lm.digest, found))
