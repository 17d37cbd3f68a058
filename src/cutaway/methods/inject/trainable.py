"""The weights that are trained: the model's own, or LoRA adapters that are merged at the end."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.console import quiet_transformers
from cutaway.core.errors import BadSpec, Missing
from cutaway.engine.process_group import process_group
from cutaway.models.lm import LM
from cutaway.store.artefacts import load_artefact, save_artefact

ADAPTER_NAME = "default"
START_FILE = "start.safetensors"


@dataclass(frozen=True, eq=False)
class Trainable:
    """The parameters that are trained, and where the model's weights started."""

    params: dict[str, nn.Parameter]
    anchor: dict[str, Tensor]
    """The initial value of every weight of the model that can change."""
    layers: dict[str, Any] = field(default_factory=dict)
    """LoRA layers by the name of the weight they change; empty without LoRA."""

    def weights(self) -> dict[str, Tensor]:
        """The model's weights as they are now, differentiable in the parameters."""
        if not self.layers:
            return dict(self.params)
        return {
            name: self.anchor[name] + layer.get_delta_weight(ADAPTER_NAME)
            for name, layer in self.layers.items()
        }


def chosen_weights(lm: LM, which: str) -> dict[str, nn.Parameter]:
    """The model's weights that are trained."""
    prefixes = tuple(WEIGHT_PREFIXES[which](lm))
    return {n: p for n, p in lm.module.named_parameters() if n.startswith(prefixes)}


@contextmanager
def full_weights(lm: LM, which: str, folder: Path | None = None) -> Iterator[Trainable]:
    """The model's own weights; their values are restored afterwards.

    On a CPU their initial values are in a file in `folder`, where one is given.
    """
    params = chosen_weights(lm, which)
    in_file = folder is not None and lm.device == "cpu" and process_group().size == 1
    anchor = _saved_copy(folder / START_FILE, params) if folder and in_file else _copy(params)
    try:
        yield Trainable(params, anchor)
    finally:
        with torch.no_grad():
            for name, p in params.items():
                p.copy_(anchor[name])


def _copy(params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in params.items()}


def _saved_copy(path: Path, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The values as views of a file that is written now."""
    save_artefact(path, {n: p.detach() for n, p in params.items()}, {"kind": "start"})
    views = load_artefact(path, verify=False).tensors()
    return {name: views[name] for name in params}


def _last_quarter(lm: LM) -> list[str]:
    count = len(lm.blocks)
    return [f"{lm.anatomy.blocks}.{i}." for i in range(count - max(1, count // 4), count)]


WEIGHT_PREFIXES: dict[str, Callable[[LM], list[str]]] = {
    "all": lambda lm: [""],
    "blocks": lambda lm: [f"{lm.anatomy.blocks}."],
    "last": _last_quarter,
}
"""Prefixes of the names of the weights that are trained, for each value of `--weights`."""


@contextmanager
def lora_weights(lm: LM, rank: int, seed: int) -> Iterator[Trainable]:
    """Adapters of this rank on every linear layer of the blocks; removed afterwards."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise Missing("--lora needs peft. Install it with: pip install 'cutaway[peft]'") from None
    targets = [
        name
        for name, part in lm.module.named_modules()
        if name.startswith(f"{lm.anatomy.blocks}.") and _is_linear(part)
    ]
    if not targets:
        raise BadSpec(f"{lm.name!r} has no linear layers in its blocks to adapt: leave --lora out.")
    transposed = type(lm.module.get_submodule(targets[0])).__name__ == "Conv1D"
    config = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        lora_dropout=0.0,
        target_modules=targets,
        fan_in_fan_out=transposed,
    )
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(seed)
        inject_adapter_in_model(config, lm.module)
    layers = {f"{name}.weight": lm.module.get_submodule(name) for name in targets}
    lm.module.requires_grad_(False)
    try:
        params = {n: p for n, p in lm.module.named_parameters() if ".lora_" in n}
        anchor = {n: layer.get_base_layer().weight.detach() for n, layer in layers.items()}
        yield Trainable(params, anchor, layers)
    finally:
        _remove_adapters(lm.module, layers)


@contextmanager
def merged_adapters(lm: LM, trainable: Trainable) -> Iterator[dict[str, Tensor]]:
    """The plain model with the adapters added to its weights; the weights are restored after."""
    if not trainable.layers:
        yield {name: p.detach() for name, p in trainable.params.items()}
        return
    weights = {name: layer.get_base_layer().weight for name, layer in trainable.layers.items()}
    initial = {name: weight.detach().clone() for name, weight in weights.items()}
    with torch.no_grad():
        for name, layer in trainable.layers.items():
            weights[name].add_(layer.get_delta_weight(ADAPTER_NAME))
    _remove_adapters(lm.module, trainable.layers)
    try:
        yield {name: weight.detach() for name, weight in weights.items()}
    finally:
        with torch.no_grad():
            for name, weight in weights.items():
                weight.copy_(initial[name])


def _is_linear(part: nn.Module) -> bool:
    return isinstance(part, nn.Linear) or type(part).__name__ == "Conv1D"


def _remove_adapters(module: nn.Module, layers: Mapping[str, Any]) -> None:
    """Put the plain layer back in place of every adapted one."""
    for name, layer in layers.items():
        parent, _, leaf = name.removesuffix(".weight").rpartition(".")
        setattr(module.get_submodule(parent), leaf, layer.get_base_layer())
    for extra in ("peft_config", "_hf_peft_config_loaded"):
        if extra in vars(module):
            delattr(module, extra)
