"""`cutaway.EWCCallback`: EWC for the Hugging Face Trainer, on plain weights or LoRA adapters."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback

from cutaway.core.errors import Mismatch
from cutaway.methods.inject.fisher_file import FisherFile, load_fisher
from cutaway.methods.inject.maths.penalty import add_lora_gradient, need_strength, normalise_fisher
from cutaway.methods.inject.trainer_start import initial_weights, save_initial_weights

# Prefixes that wrappers add to the names of weights.
WRAPPER_PREFIXES = ("module.", "_orig_mod.", "base_model.model.")
# PEFT's full copies of modules that are trained in addition to adapters.
SAVED_MODULE = re.compile(r"\.modules_to_save\.[^.]+\.")


class EWCCallback(TrainerCallback):
    """Elastic weight consolidation: keeps important weights near their initial values.

        Trainer(..., callbacks=[cutaway.EWCCallback("fisher.safetensors", strength=10.0)])

    Before each optimiser step, strength * F * (weight - initial) is added to the gradient: the
    gradient of strength/2 * sum F (weight - initial)^2. This happens after the Trainer's gradient
    clipping. With LoRA the change of a weight is its adapter's product, and the gradient goes to
    the two factors.

    Parameters
    ----------
    fisher
        A file of `cutaway fisher`, or {weight name: tensor}. A Fisher of another model is refused:
        a file by its names and weights, tensors by their shapes.
    strength
        The regularisation strength.
    normalise
        Divide the Fisher by its mean, as `cutaway inject` does.
    partial
        Regularise only the weights that file and model both have, for example all but a new head.

    The initial weights are saved in the Trainer's `output_dir`, so that a resumed training ends in
    the same weights.
    """

    def __init__(
        self,
        fisher: "str | Path | Mapping[str, Tensor]",
        strength: float,
        *,
        normalise: bool = False,
        partial: bool = False,
    ) -> None:
        self.strength, self.partial = need_strength(strength), partial
        self.source: FisherFile | None = None
        if isinstance(fisher, Mapping):
            values: Mapping[str, Tensor] = fisher
        else:
            self.source = load_fisher(fisher)
            values = self.source.tensors()
        self.fisher: Mapping[str, Tensor] = normalise_fisher(values) if normalise else dict(values)
        self.anchor: dict[str, Tensor] = {}
        self.adapters: dict[str, Any] = {}
        self.penalty = 0.0
        """The penalty at the last step."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Store the initial weights; Mismatch when the Fisher is another model's."""
        model: nn.Module = kwargs["model"]
        name, weights = _model_name(model), base_weights(model)
        self._check_fisher(weights, name)
        trained = {n: w for n, w in weights.items() if w.requires_grad}
        initial = initial_weights(args, state, trained)
        if self.source is not None:
            # Frozen weights still have their initial values, also in a resumed training.
            self.source.need_initial_weights({**weights, **initial}, name)
        self.anchor = {n: w for n, w in initial.items() if n in self.fisher}
        self.adapters = {n: layer for n, layer in _lora_layers(model) if n in self.fisher}
        if not self.anchor and not self.adapters:
            raise Mismatch(
                f"No trained weight of {name!r} is in {self._fisher_name()}, which has "
                f"{next(iter(self.fisher), 'nothing')!r} and others: it is another model's."
            )
        save_initial_weights(args, state, initial)

    @torch.no_grad()
    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add the penalty's gradient."""
        total = 0.0
        for name, weight in base_weights(kwargs["model"]).items():
            if name in self.anchor and weight.grad is not None:
                step = weight.detach() - self.anchor[name]
                gradient = step * self.fisher[name].to(step) * self.strength
                weight.grad.add_(gradient)
                total += 0.5 * float((gradient * step).sum())
        for name, layer in self.adapters.items():
            total += self._add_adapter_gradient(name, layer)
        self.penalty = total

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add `ewc_penalty` to the log and to the Trainer's log_history."""
        if kwargs.get("logs") is not None:
            kwargs["logs"]["ewc_penalty"] = self.penalty
            # The Trainer appends a copy of the log before it calls this.
            if state.log_history and state.log_history[-1].get("step") == state.global_step:
                state.log_history[-1]["ewc_penalty"] = self.penalty

    def _add_adapter_gradient(self, name: str, layer: Any) -> float:
        total = 0.0
        for adapter in layer.active_adapters:
            if adapter in layer.lora_A:
                left, right = layer.lora_A[adapter].weight, layer.lora_B[adapter].weight
                delta = layer.get_delta_weight(adapter)
                fisher = self.fisher[name].to(delta)
                if layer.fan_in_fan_out:
                    delta, fisher = delta.T, fisher.T
                scale = float(layer.scaling[adapter])
                add_lora_gradient(left, right, delta, fisher, self.strength, scale)
                total += 0.5 * self.strength * float((fisher * delta.square()).sum())
        return total

    def _check_fisher(self, weights: Mapping[str, Tensor], name: str) -> None:
        """Mismatch unless model and Fisher have the same names and shapes."""
        # Tensors may be named for a part of the model on purpose; a file may be a mix-up.
        lenient = self.partial or self.source is None
        wrong = [] if lenient else sorted(set(weights) ^ set(self.fisher))
        if wrong:
            sides = (name, self._fisher_name())
            has, lacks = sides if wrong[0] in weights else sides[::-1]
            raise Mismatch(
                f"{has} has {wrong[0]!r}, {lacks} hasn't ({len(wrong)} such weights): the Fisher "
                "is another model's. Make one with: cutaway fisher --model ...; partial=True uses "
                "only the weights that both have."
            )
        for weight in weights.keys() & self.fisher.keys():
            here, there = weights[weight], self.fisher[weight]
            # Quantised weights are packed: their shape means nothing.
            if here.is_floating_point() and here.shape != there.shape:
                raise Mismatch(
                    f"{weight!r} has shape {tuple(there.shape)} in {self._fisher_name()}, "
                    f"{tuple(here.shape)} in {name!r}: the Fisher is another model's."
                )

    def _fisher_name(self) -> str:
        if self.source is None:
            return "the Fisher"
        return f"{str(self.source.artefact.path)!r} (of {self.source.meta['model']['name']!r})"


def unwrapped_name(name: str) -> str:
    """A weight's name without what wrappers add to it."""
    for prefix in WRAPPER_PREFIXES:
        name = name.removeprefix(prefix)
    return SAVED_MODULE.sub(".", name.replace(".base_layer.", "."))


def base_weights(model: nn.Module) -> dict[str, Tensor]:
    """The model's weights by their unwrapped names, without adapters."""
    return {
        unwrapped_name(name): weight
        for name, weight in model.named_parameters()
        if "lora_" not in name and ".original_module." not in name
    }


def _model_name(model: nn.Module) -> str:
    return str(getattr(model, "name_or_path", "") or type(model).__name__)


def _lora_layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """(weight name, layer) of every LoRA layer."""
    for name, part in model.named_modules():
        if hasattr(part, "lora_A") and hasattr(part, "get_delta_weight") and len(part.lora_A):
            yield unwrapped_name(f"{name}.weight"), part
