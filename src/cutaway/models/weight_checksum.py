"""A checksum of a model's weights as they are in memory now."""

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
    """A checksum of tensors in memory: every name, shape, type and bit."""
    # hashlib releases the GIL, so several tensors are hashed at once.
    with ThreadPoolExecutor() as pool:
        sums = pool.map(_sha256, values.values())
        return digest_json(
            {
                name: [list(value.shape), str(value.dtype).removeprefix("torch."), digest]
                for (name, value), digest in zip(values.items(), sums, strict=True)
            }
        )


def _sha256(value: Tensor) -> str:
    flat = value.detach().to("cpu").contiguous().reshape(-1)
    return hashlib.sha256(flat.view(torch.uint8).numpy().data).hexdigest()


def module_checksum(module: nn.Module) -> str:
    """The checksum of a module's weights (tied ones once) and saved buffers."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    buffers = {
        name: value
        for name, value in module.state_dict().items()
        if name not in parameters and isinstance(value, Tensor)
    }
    return checksum(dict(module.named_parameters()) | buffers)


def with_checksum(lm: LM, *, same_each_time: bool) -> LM:
    """The model with a checksum of its weights, by which `LM.refresh_digest` detects changes.

    `same_each_time`: opening it again gives the same bits (no adapter is merged, no head is
    initialised), so the checksum is computed once and cached.
    """
    versions = [version("torch"), version("transformers")]
    key = digest_json([lm.digest, lm.dtype, *versions])
    checksum_opened = read_memo("prints", key) if same_each_time else None
    if not isinstance(checksum_opened, str):
        checksum_opened = module_checksum(lm.module)
        if same_each_time:
            write_memo("prints", key, checksum_opened)
    return replace(lm, opened=(lm.digest, checksum_opened))
