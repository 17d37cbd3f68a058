"""What is added to the loss so that the rest stays: one function per row of REGULARISERS."""

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


@dataclass(frozen=True, eq=False)
class RegulariserInputs:
    """All that a regulariser may need."""

    lm: LM
    trainable: Trainable
    kept: Sequence[RetainedSet]
    fisher: Mapping[str, Tensor] | None
    strength: float
    batch: int
    seed: int


def make_extra_loss(name: str, setting: RegulariserInputs) -> ExtraLoss | None:
    """What is added to the loss of a step; None where nothing is, so that 0 costs nothing."""
    make = EXTRA_LOSSES[name]
    return None if make is None or setting.strength == 0 else make(setting)


def _ewc(setting: RegulariserInputs) -> ExtraLoss:
    return _weight_penalty(setting, setting.fisher)


def _l2sp(setting: RegulariserInputs) -> ExtraLoss:
    return _weight_penalty(setting, None)


def _weight_penalty(setting: RegulariserInputs, fisher: Mapping[str, Tensor] | None) -> ExtraLoss:
    trainable = setting.trainable
    chosen = None if fisher is None else {name: fisher[name] for name in trainable.anchor}
    return lambda step: fused_penalty(trainable.moved(), trainable.anchor, chosen, setting.strength)


def _kl(setting: RegulariserInputs) -> ExtraLoss:
    def extra(step: int) -> Tensor:
        chosen = _retained_batch(setting, step)
        with torch.no_grad():
            base = _base_logits(setting, chosen)
        _, asked = pad(chosen.targets, 0)
        now = target_logits(setting.lm, chosen)
        return setting.strength * kl_from_base(base, now, asked.to(setting.lm.device))

    return extra


def _replay(setting: RegulariserInputs) -> ExtraLoss:
    def extra(step: int) -> Tensor:
        chosen = _retained_batch(setting, step)
        return setting.strength * example_losses(setting.lm, chosen, range(len(chosen))).mean()

    return extra


def _retained_batch(setting: RegulariserInputs, step: int) -> Examples:
    """The retained texts of a step: sets in turn, rows drawn by seed and step."""
    examples = setting.kept[step % len(setting.kept)].fit
    rng = np.random.default_rng([setting.seed, step, 1])
    rows = rng.choice(len(examples), size=min(setting.batch, len(examples)), replace=False)
    return examples.take(np.sort(rows))


def _base_logits(setting: RegulariserInputs, examples: Examples) -> Tensor:
    """What the untrained model says; its weights are the anchor."""
    lm, trainable = setting.lm, setting.trainable
    if not trainable.layers:
        found: Tensor = with_params(
            lm.module, trainable.anchor, lambda _: target_logits(lm, examples)
        )
        return found
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
