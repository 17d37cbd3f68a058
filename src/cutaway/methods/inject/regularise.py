"""The regularisers: each adds a term to the loss that keeps what the model already knows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cutaway.methods.inject.examples import Examples, example_losses, target_logits
from cutaway.methods.inject.maths.penalty import fused_penalty, kl_from_base
from cutaway.methods.inject.retain import RetainedSet
from cutaway.methods.inject.trainable import ADAPTER_NAME, Trainable
from cutaway.models.lm import LM
from cutaway.models.swap import with_params
from cutaway.models.tokens import pad

ExtraLoss = Callable[[int], Tensor]
"""The term of a step, given the step's number."""


@dataclass(frozen=True, eq=False)
class RegulariserInputs:
    """Everything a regulariser may need."""

    lm: LM
    trainable: Trainable
    retained: Sequence[RetainedSet]
    fisher: Mapping[str, Tensor] | None
    fisher_scale: float
    """What the Fisher is divided by; done with the strength, so that no scaled copy is kept."""
    strength: float
    batch: int
    seed: int


def make_extra_loss(name: str, inputs: RegulariserInputs) -> ExtraLoss | None:
    """The term that a regulariser adds; None for plain training and for strength 0."""
    make = EXTRA_LOSSES[name]
    return None if make is None or inputs.strength == 0 else make(inputs)


def _ewc(inputs: RegulariserInputs) -> ExtraLoss:
    return _weight_penalty(inputs, inputs.fisher, inputs.strength / inputs.fisher_scale)


def _l2sp(inputs: RegulariserInputs) -> ExtraLoss:
    return _weight_penalty(inputs, None, inputs.strength)


def _weight_penalty(
    inputs: RegulariserInputs, fisher: Mapping[str, Tensor] | None, strength: float
) -> ExtraLoss:
    anchor = inputs.trainable.anchor
    chosen = None if fisher is None else {name: fisher[name] for name in anchor}
    return lambda step: fused_penalty(inputs.trainable.weights(), anchor, chosen, strength)


def _kl(inputs: RegulariserInputs) -> ExtraLoss:
    def extra(step: int) -> Tensor:
        batch = _retained_batch(inputs, step)
        with torch.no_grad():
            base = _base_logits(inputs, batch)
        _, mask = pad(batch.targets, 0)
        now = target_logits(inputs.lm, batch)
        return inputs.strength * kl_from_base(base, now, mask.to(inputs.lm.device))

    return extra


def _replay(inputs: RegulariserInputs) -> ExtraLoss:
    def extra(step: int) -> Tensor:
        batch = _retained_batch(inputs, step)
        return inputs.strength * example_losses(inputs.lm, batch, range(len(batch))).mean()

    return extra


def _retained_batch(inputs: RegulariserInputs, step: int) -> Examples:
    """The retained texts of a step: sets in turn, rows drawn by seed and step."""
    examples = inputs.retained[step % len(inputs.retained)].train
    rng = np.random.default_rng([inputs.seed, step, 1])
    rows = rng.choice(len(examples), size=min(inputs.batch, len(examples)), replace=False)
    return examples.take(np.sort(rows))


def _base_logits(inputs: RegulariserInputs, examples: Examples) -> Tensor:
    """The logits of the base model: with the initial weights, or without the adapters."""
    lm, trainable = inputs.lm, inputs.trainable
    if not trainable.layers:
        logits: Tensor = with_params(
            lm.module, trainable.anchor, lambda _: target_logits(lm, examples)
        )
        return logits
    scales = {name: layer.scaling[ADAPTER_NAME] for name, layer in trainable.layers.items()}
    try:
        for layer in trainable.layers.values():
            layer.scaling[ADAPTER_NAME] = 0.0
        return target_logits(lm, examples)
    finally:
        for name, layer in trainable.layers.items():
            layer.scaling[ADAPTER_NAME] = scales[name]


EXTRA_LOSSES: dict[str, Callable[[RegulariserInputs], ExtraLoss] | None] = {
    "none": None,
    "ewc": _ewc,
    "l2sp": _l2sp,
    "kl": _kl,
    "replay": _replay,
}
