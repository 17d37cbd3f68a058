"""A stand-in for a device without float64, as Apple's GPUs are: code can be run on it anywhere.

Tensors of class `MpsLike` compute on the CPU, say that they are on `mps`, refuse float64, and
refuse to be combined with tensors of the CPU, as tensors of that device do. Weights count as being
there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from cutaway.models.lm import LM

MPS = torch.device("mps")
ACROSS_DEVICES = {"__getitem__", "__setitem__", "copy_", "index_put_"}
"""What may combine tensors of two devices."""


class MpsLike(Tensor):
    """A tensor that says it is on `mps`."""


def _is_mps(value: Any) -> bool:
    return isinstance(value, str | torch.device) and str(value) == "mps"


def _is_cpu(value: Any) -> bool:
    return isinstance(value, str | torch.device) and str(value) == "cpu"


class _Mode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        here = [t for t in tensors if type(t) is MpsLike]
        if name == "__get__" and func == Tensor.device.__get__:
            return MPS if here else func(*args)
        if name in ("cpu", "to") and (
            name == "cpu" or any(map(_is_cpu, [*args[1:], *kwargs.values()]))
        ):
            return func(*tree_map(_plain, args), **tree_map(_plain, kwargs))
        moved = any(map(_is_mps, [*args[1:], *kwargs.values()]))
        like = name == "to" and any(type(t) is MpsLike for t in tree_leaves((args[1:], kwargs)))
        if name == "to" and len(tensors) == 2 and not like:
            here = []
        if here and not moved and name not in ACROSS_DEVICES | {"to"}:
            others = [t for t in tensors if type(t) is Tensor and t.dim() > 0]
            assert not others, f"{name} combines tensors of mps and of the CPU"
        swap = lambda v: torch.device("cpu") if _is_mps(v) else _plain(v)  # noqa: E731
        result = func(*tree_map(swap, args), **tree_map(swap, kwargs))
        if not (here or moved or like):
            return result
        return tree_map(_wrapped, result)


def _plain(value: Any) -> Any:
    return value.as_subclass(Tensor) if type(value) is MpsLike else value


def _wrapped(value: Any) -> Any:
    if type(value) is not Tensor:
        return value
    if value.dtype == torch.float64:
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
    return value.as_subclass(MpsLike)


@contextmanager
def device_without_float64() -> Iterator[None]:
    """Within the block `mps` is a device of this kind."""
    with _Mode():
        yield


def on_device_without_float64(lm: LM) -> LM:
    """A copy of the model that is there."""
    module = deepcopy(lm.module)
    for part in module.modules():
        for name, buffer in part._buffers.items():
            if buffer is not None and buffer.dtype != torch.float64:
                part._buffers[name] = buffer.as_subclass(MpsLike)
    return replace(lm, module=module, device="mps")
