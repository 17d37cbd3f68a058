"""`cutaway.EWCCallback`: EWC for the Hugging Face Trainer, plain weights or LoRA adapters."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback

from cutaway.core.errors import Mismatch
from cutaway.methods.inject.penalty import add_low_rank, need_strength, normalised
from cutaway.run.inject.files import load_fisher

# What wrappers put in front of or into the names of weights.
WRAPPERS = ("module.", "_orig_mod.", "base_model.model.")


class EWCCallback(TrainerCallback):
    """Holds weights that mattered near where they were when training began.

        Trainer(..., callbacks=[cutaway.EWCCallback("fisher.safetensors", strength=10.0)])

    Before each optimiser step strength * F * (weight - start) is added to the gradient: the
    gradient of strength/2 * sum F (weight - start)^2. It comes after the Trainer's clipping. With
    LoRA the change of a weight is its adapter's product, and the pull goes to its two factors.
    `fisher` is a file of `cutaway fisher` or {weight name: tensor}; `normalise` divides it by its
    mean, as `cutaway inject` does.
    """

    def __init__(
        self,
        fisher: "str | Path | Mapping[str, Tensor]",
        strength: float,
        *,
        normalise: bool = False,
    ) -> None:
        self.strength = need_strength(strength)
        values = fisher if isinstance(fisher, Mapping) else load_fisher(fisher).tensors()
        self.fisher: Mapping[str, Tensor] = normalised(values) if normalise else dict(values)
        self.anchor: dict[str, Tensor] = {}
        self.adapters: dict[str, Any] = {}
        self.penalty = 0.0
        """The penalty at the last step."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Remember where the weights start; Mismatch when none of them is in the Fisher."""
        model: nn.Module = given["model"]
        self.adapters = {
            found: part for name, part in _adapters(model) if (found := self._known(name))
        }
        self.anchor = {}
        for name, weight in model.named_parameters():
            found = self._known(name) if weight.requires_grad else None
            if found is not None:
                self._fits(found, weight)
                self.anchor[found] = weight.detach().clone()
        if not self.anchor and not self.adapters:
            raise Mismatch(
                f"No trained weight of this model is in the Fisher, which has "
                f"{next(iter(self.fisher), 'nothing')!r} and others: it is another model's."
            )

    @torch.no_grad()
    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Add the penalty's gradient."""
        total = 0.0
        for name, weight in given["model"].named_parameters():
            found = bare(name)
            if found in self.anchor and weight.grad is not None:
                step = weight.detach() - self.anchor[found]
                back = step * self.fisher[found].to(step) * self.strength
                weight.grad.add_(back)
                total += 0.5 * float((back * step).sum())
        for name, part in self.adapters.items():
            total += self._pull_adapter(name, part)
        self.penalty = total

    def on_log(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """The penalty stands in the log beside the loss."""
        if given.get("logs") is not None:
            given["logs"]["ewc_penalty"] = self.penalty

    def _pull_adapter(self, name: str, part: Any) -> float:
        total = 0.0
        for adapter in part.active_adapters:
            if adapter in part.lora_A:
                left, right = part.lora_A[adapter].weight, part.lora_B[adapter].weight
                delta = part.get_delta_weight(adapter)
                fisher, turned = self.fisher[name].to(delta), bool(part.fan_in_fan_out)
                delta, fisher = (delta.T, fisher.T) if turned else (delta, fisher)
                scale = float(part.scaling[adapter])
                add_low_rank(left, right, delta, fisher, self.strength, scale)
                total += 0.5 * self.strength * float((fisher * delta.square()).sum())
        return total

    def _known(self, name: str) -> str | None:
        found = bare(name)
        return found if found in self.fisher else None

    def _fits(self, name: str, weight: Tensor) -> None:
        if weight.shape != self.fisher[name].shape:
            raise Mismatch(
                f"The Fisher of {name!r} has shape {tuple(self.fisher[name].shape)}, the weight "
                f"{tuple(weight.shape)}: it is another model's."
            )


def bare(name: str) -> str:
    """A weight's name without what wrappers add to it."""
    for wrapper in WRAPPERS:
        name = name.removeprefix(wrapper)
    return name.replace(".base_layer.", ".")


def _adapters(model: nn.Module) -> list[tuple[str, Any]]:
    """(weight name, layer) of every LoRA layer."""
    return [
        (f"{name}.weight", part)
        for name, part in model.named_modules()
        if hasattr(part, "lora_A") and hasattr(part, "get_delta_weight") and len(part.lora_A)
    ]
