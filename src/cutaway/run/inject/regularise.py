"""What is added to the loss so that the rest stays: one function per row of REGULARISERS."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cutaway.methods.inject.penalty import distance, pull
from cutaway.models.lm import LM
from cutaway.models.swap import with_params
from cutaway.models.tokens import pad
from cutaway.run.inject.examples import Examples, logits, losses
from cutaway.run.inject.retain import Kept
from cutaway.run.inject.weights import ADAPTER, Trainable

Extra = Callable[[int], Tensor]


@dataclass(frozen=True, eq=False)
class Setting:
    """All that a regulariser may need."""

    lm: LM
    trainable: Trainable
    kept: Sequence[Kept]
    fisher: Mapping[str, Tensor] | None
    strength: float
    batch: int
    seed: int


def extra_loss(name: str, setting: Setting) -> Extra | None:
    """What is added to the loss of a step; None where nothing is, so that 0 costs nothing."""
    make = MAKERS[name]
    return None if make is None or setting.strength == 0 else make(setting)


def _ewc(setting: Setting) -> Extra:
    return _pull(setting, setting.fisher)


def _l2sp(setting: Setting) -> Extra:
    return _pull(setting, None)


def _pull(setting: Setting, fisher: Mapping[str, Tensor] | None) -> Extra:
    trainable = setting.trainable
    chosen = None if fisher is None else {name: fisher[name] for name in trainable.anchor}
    return lambda step: pull(trainable.moved(), trainable.anchor, chosen, setting.strength)


def _kl(setting: Setting) -> Extra:
    def extra(step: int) -> Tensor:
        chosen = _batch(setting, step)
        with torch.no_grad():
            base = _base_logits(setting, chosen)
        _, asked = pad(chosen.targets, 0)
        now = logits(setting.lm, chosen)
        return setting.strength * distance(base, now, asked.to(setting.lm.device))

    return extra


def _replay(setting: Setting) -> Extra:
    def extra(step: int) -> Tensor:
        chosen = _batch(setting, step)
        return setting.strength * losses(setting.lm, chosen, range(len(chosen))).mean()

    return extra


def _batch(setting: Setting, step: int) -> Examples:
    """The retained texts of a step: sets in turn, rows drawn by seed and step."""
    examples = setting.kept[step % len(setting.kept)].fit
    rng = np.random.default_rng([setting.seed, step, 1])
    rows = rng.choice(len(examples), size=min(setting.batch, len(examples)), replace=False)
    return examples.take(np.sort(rows))


def _base_logits(setting: Setting, examples: Examples) -> Tensor:
    """What the untrained model says; its weights are the anchor."""
    lm, trainable = setting.lm, setting.trainable
    if not trainable.layers:
        found: Tensor = with_params(lm.module, trainable.anchor, lambda _: logits(lm, examples))
        return found
    scales = {name: layer.scaling[ADAPTER] for name, layer in trainable.layers.items()}
    try:
        for layer in trainable.layers.values():
            layer.scaling[ADAPTER] = 0.0
        return logits(lm, examples)
    finally:
        for name, layer in trainable.layers.items():
            layer.scaling[ADAPTER] = scales[name]


MAKERS: dict[str, Callable[[Setting], Extra] | None] = {
    "none": None,
    "ewc": _ewc,
    "l2sp": _l2sp,
    "kl": _kl,
    "replay": _replay,
}
