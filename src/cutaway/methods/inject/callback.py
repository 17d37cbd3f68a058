"""`cutaway.EWCCallback`: EWC for the Hugging Face Trainer, plain weights or LoRA adapters."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback

from cutaway.core.errors import Mismatch
from cutaway.methods.inject.fisher_file import FisherFile, load_fisher
from cutaway.methods.inject.maths.penalty import add_lora_gradient, need_strength, normalise_fisher
from cutaway.methods.inject.trainer_start import initial_weights, save_initial_weights

# What wrappers put in front of or into the names of weights.
WRAPPER_PREFIXES = ("module.", "_orig_mod.", "base_model.model.")
# PEFT's whole copies of parts that learn beside adapters.
SAVED_MODULE = re.compile(r"\.modules_to_save\.[^.]+\.")


class EWCCallback(TrainerCallback):
    """Holds weights that mattered near where they were when training began.

        Trainer(..., callbacks=[cutaway.EWCCallback("fisher.safetensors", strength=10.0)])

    Before each optimiser step strength * F * (weight - start) is added to the gradient: the
    gradient of strength/2 * sum F (weight - start)^2. It comes after the Trainer's clipping. With
    LoRA the change of a weight is its adapter's product, and the pull goes to its two factors.
    `fisher` is a file of `cutaway fisher` or {weight name: tensor}; `normalise` divides it by its
    mean, as `cutaway inject` does. A Fisher of other weights is refused: a file's by the names and
    weights it was made on, tensors by their shapes. `partial` holds the weights that a file and the
    model both have, such as all but a new head's. The start is kept in the Trainer's `output_dir`:
    a training that is taken up again ends in the same weights.
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

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Remember where the weights start; Mismatch when the Fisher is another model's."""
        model: nn.Module = given["model"]
        name, own = _model_name(model), base_weights(model)
        self._fits(own, name)
        start = initial_weights(args, state, {n: w for n, w in own.items() if w.requires_grad})
        if self.source is not None:
            # What is frozen is still what it was, also in a training that is taken up again.
            self.source.need_start({**own, **start}, name)
        self.anchor = {n: w for n, w in start.items() if n in self.fisher}
        self.adapters = {
            found: part
            for long, part in _lora_layers(model)
            if (found := unwrapped_name(long)) in self.fisher
        }
        if not self.anchor and not self.adapters:
            raise Mismatch(
                f"No trained weight of {name!r} is in {self._called()}, which has "
                f"{next(iter(self.fisher), 'nothing')!r} and others: it is another model's."
            )
        save_initial_weights(args, state, start)

    @torch.no_grad()
    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Add the penalty's gradient."""
        total = 0.0
        for name, weight in base_weights(given["model"]).items():
            if name in self.anchor and weight.grad is not None:
                step = weight.detach() - self.anchor[name]
                back = step * self.fisher[name].to(step) * self.strength
                weight.grad.add_(back)
                total += 0.5 * float((back * step).sum())
        for name, part in self.adapters.items():
            total += self._pull_adapter(name, part)
        self.penalty = total

    def on_log(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """The penalty stands in the log beside the loss, and in the Trainer's log_history."""
        if given.get("logs") is not None:
            given["logs"]["ewc_penalty"] = self.penalty
            # The Trainer has put a copy there before it calls.
            if state.log_history and state.log_history[-1].get("step") == state.global_step:
                state.log_history[-1]["ewc_penalty"] = self.penalty

    def _pull_adapter(self, name: str, part: Any) -> float:
        total = 0.0
        for adapter in part.active_adapters:
            if adapter in part.lora_A:
                left, right = part.lora_A[adapter].weight, part.lora_B[adapter].weight
                delta = part.get_delta_weight(adapter)
                fisher, turned = self.fisher[name].to(delta), bool(part.fan_in_fan_out)
                delta, fisher = (delta.T, fisher.T) if turned else (delta, fisher)
                scale = float(part.scaling[adapter])
                add_lora_gradient(left, right, delta, fisher, self.strength, scale)
                total += 0.5 * self.strength * float((fisher * delta.square()).sum())
        return total

    def _fits(self, own: Mapping[str, Tensor], name: str) -> None:
        """Mismatch unless model and Fisher have the same names and shapes."""
        # Who gives tensors has chosen their names; a file may be taken for another by mistake.
        free = self.partial or self.source is None
        wrong = [] if free else sorted(set(own) ^ set(self.fisher))
        if wrong:
            has, lacks = (name, self._called()) if wrong[0] in own else (self._called(), name)
            raise Mismatch(
                f"{has} has {wrong[0]!r}, {lacks} hasn't ({len(wrong)} such weights): the Fisher "
                "is another model's. Make one with: cutaway fisher --model ...; partial=True holds "
                "only the weights that both have."
            )
        for weight in own.keys() & self.fisher.keys():
            here, there = own[weight], self.fisher[weight]
            # Quantised weights are packed: their shape says nothing.
            if here.is_floating_point() and here.shape != there.shape:
                raise Mismatch(
                    f"{weight!r} has shape {tuple(there.shape)} in {self._called()}, "
                    f"{tuple(here.shape)} in {name!r}: the Fisher is another model's."
                )

    def _called(self) -> str:
        if self.source is None:
            return "the Fisher"
        return f"{str(self.source.artefact.path)!r} (of {self.source.meta['model']['name']!r})"


def unwrapped_name(name: str) -> str:
    """A weight's name without what wrappers add to it."""
    for wrapper in WRAPPER_PREFIXES:
        name = name.removeprefix(wrapper)
    return SAVED_MODULE.sub(".", name.replace(".base_layer.", "."))


def base_weights(model: nn.Module) -> dict[str, Tensor]:
    """The model's weights by their bare names, without what adapters add."""
    return {
        unwrapped_name(name): weight
        for name, weight in model.named_parameters()
        if "lora_" not in name and ".original_module." not in name
    }


def _model_name(model: nn.Module) -> str:
    return str(getattr(model, "name_or_path", "") or type(model).__name__)


def _lora_layers(model: nn.Module) -> list[tuple[str, Any]]:
    """(weight name, layer) of every LoRA layer."""
    return [
        (f"{name}.weight", part)
        for name, part in model.named_modules()
        if hasattr(part, "lora_A") and hasattr(part, "get_delta_weight") and len(part.lora_A)
    ]
