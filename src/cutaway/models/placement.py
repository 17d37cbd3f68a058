"""Where a model's weights are kept, and in which precision: device, dtype, quantisation."""

import atexit
import logging
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch

from cutaway.core.device_name import need_device_name
from cutaway.core.errors import BadModel, BadSpec, Missing
from cutaway.core.lookup import lookup
from cutaway.home import home

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}
QUANTISATIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "int8": {"load_in_8bit": True},
    "int4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
}
"""Precision of the linear layers' weights, as arguments of transformers' BitsAndBytesConfig."""
MaxMemory = Mapping[int | str, int | str]


@dataclass(frozen=True)
class Placement:
    """How a model is to be loaded: `device` is one device, or `map` for all that there are."""

    device: str
    dtype: str
    quantise: str = "none"
    max_memory: MaxMemory | None = None
    """For `map`: the most that each device may hold, as accelerate takes it."""

    @property
    def moves(self) -> bool:
        """Whether the whole model is moved to its device after loading."""
        return self.device != "map" and self.quantise == "none"

    def load_options(self) -> dict[str, Any]:
        """The arguments of `from_pretrained`."""
        options: dict[str, Any] = {"dtype": DTYPES[self.dtype]}
        if self.quantise != "none":
            options["quantization_config"] = self._quantisation()
        if not self.moves:
            options["device_map"] = "auto" if self.device == "map" else {"": self.device}
        if self.device == "map":
            # Only for weights that transformers rearranges (mixtures of experts); others are read
            # from the checkpoint itself. Removed when the process ends.
            options["offload_folder"] = _offload_folder()
        if self.max_memory is not None:
            options["max_memory"] = dict(self.max_memory)
        return options

    def _quantisation(self) -> Any:
        from transformers import BitsAndBytesConfig

        # It warns at every layer of every pass that int8 rounds its inputs to float16.
        logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
        config: Any = BitsAndBytesConfig
        return config(**QUANTISATIONS[self.quantise], bnb_4bit_compute_dtype=DTYPES[self.dtype])


@cache
def _offload_folder() -> str:
    home().mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="offload-", dir=home())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def choose_placement(
    device: str,
    dtype: str,
    quantise: str = "none",
    *,
    checkpoint: Any = None,
    max_memory: MaxMemory | None = None,
) -> Placement:
    """The placement with every `auto` resolved; BadSpec or Missing for what can't be had here.

    `checkpoint` is the dtype in the checkpoint's config, which `auto` uses on a GPU. On a CPU
    `auto` is float32: half precision is slower there and less exact.
    """
    lookup({"auto": None, **DTYPES}, dtype, kind="dtype")
    lookup(QUANTISATIONS, quantise, kind="quantisation")
    place = choose_device(device)
    if max_memory is not None and place != "map":
        raise BadSpec(f"max_memory needs device='map', got device={device!r}.")
    runs_on = main_device() if place == "map" else place
    if dtype == "auto":
        own = str(checkpoint).removeprefix("torch.")
        dtype = own if runs_on != "cpu" and own in DTYPES else "float32"
    _need_dtype(runs_on, dtype)
    if quantise != "none":
        _need_quantisation(runs_on, quantise)
    return Placement(place, dtype, quantise, max_memory)


def choose_device(device: str) -> str:
    """The device, `auto` resolved; BadSpec for a device this machine doesn't have."""
    if need_device_name(device) in ("auto", "map"):
        return main_device() if device == "auto" else device
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].split(". ")[0].rstrip(".")
        here = ", ".join(["auto", "cpu", "map", *_accelerators()])
        raise BadSpec(
            f"device {device!r} can't be used: {reason}. On this machine: {here}."
        ) from None
    return device


def main_device() -> str:
    """The fastest kind of device of this machine."""
    return ([name for name in _accelerators() if ":" not in name] or ["cpu"])[0]


def _accelerators() -> list[str]:
    """The devices besides the CPU."""
    if torch.cuda.is_available():
        return ["cuda", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    return ["mps"] if torch.backends.mps.is_available() else []


def _need_dtype(device: str, dtype: str) -> None:
    """BadSpec unless the device computes in this precision."""
    try:
        one = torch.ones(1, 1, device=device, dtype=DTYPES[dtype])
        one @ one
    except (RuntimeError, TypeError) as error:
        reason = str(error).splitlines()[0].split(". ")[0].rstrip(".")
        raise BadSpec(
            f"dtype {dtype!r} can't be used on device {device!r}: {reason}. Try float32."
        ) from None


def _need_quantisation(device: str, quantise: str) -> None:
    """Missing without the backend, BadSpec on a device that it doesn't support."""
    if find_spec("bitsandbytes") is None:
        raise Missing(
            f"quantise {quantise!r} needs the package bitsandbytes. Install it with: "
            "pip install 'cutaway[quantise]'"
        )
    if device == "mps":
        raise BadSpec(
            f"quantise {quantise!r} can't be used on device 'mps': bitsandbytes has no kernels for "
            "it. Use device cpu or cuda, or quantise none."
        )


def module_placement(module: Any) -> dict[str, str]:
    """The device of each part of a module that accelerate distributed; empty for all others."""
    places: Mapping[str, Any] = getattr(module, "hf_device_map", None) or {}
    if len(places) == 1 and "disk" not in places.values():
        return {}
    return {name: f"cuda:{at}" if isinstance(at, int) else str(at) for name, at in places.items()}


def input_device(module: Any, embeddings: str) -> str:
    """The device that takes the token ids: where the embeddings run, even if offloaded."""
    table = module.get_submodule(embeddings)
    hook = getattr(table, "_hf_hook", None)
    where = getattr(hook, "execution_device", None)
    if where is None:
        where = table.weight.device
    return f"cuda:{where}" if isinstance(where, int) else str(where)


def materialise(module: Any, name: str, device: str) -> Any:
    """The tensor `name` of a module on `device`, read from where it is offloaded to; or None."""
    value = getattr(module, name, None)
    if value is None:
        return None
    if value.device.type != "meta":
        return value.to(device)
    from accelerate.utils import align_module_device

    with align_module_device(module):
        return getattr(module, name).detach().to(device, copy=True)


@contextmanager
def refuse_undistributable(lm: Any) -> Iterator[None]:
    """BadModel when the block fails because the model doesn't run distributed or quantised."""
    try:
        yield
    except (NotImplementedError, RuntimeError) as error:
        if not lm.device_map and lm.quantise == "none":
            raise
        how = f"quantised to {lm.quantise}" if lm.quantise != "none" else "distributed by `map`"
        reason = str(error).splitlines()[0].rstrip(".")
        raise BadModel(
            f"{lm.name!r} ({lm.family}) doesn't run {how}: {reason}. Open it on one device, with "
            "quantise none. (On a CPU, int4 needs layers whose widths are multiples of 64.)"
        ) from None


def need_changeable(name: str, module: Any) -> None:
    """BadModel unless the weights can be changed: not quantised, and all in memory."""
    if getattr(module, "is_quantized", False):
        raise BadModel(
            f"The weights of {name!r} are quantised, and this verb changes or differentiates "
            "weights. Use the checkpoint it was quantised from, with quantise none."
        )
    if any(p.device.type == "meta" for p in module.parameters()):
        raise BadModel(
            f"Parts of {name!r} are offloaded to CPU or disk, and this verb changes or "
            "differentiates weights. Choose a device that holds the whole model, or a smaller "
            "dtype."
        )
