"""The MASKS table: other ways to choose as many weights, so that a learned choice can be judged.

random         any weights that moved, then any others
movement       the largest |tuned - base| (the paper's starting mask)
grad_movement  the largest |gradient x movement|, the gradient of the task loss at the base
fisher         the largest diagonal Fisher information of the task at the base, of
               weights that moved (FISH mask)
uniform        the largest movement within each tensor, as many per weight everywhere
biases         the largest movement among the biases (BitFit cut to size)
ties           top movement, its change stretched by a factor chosen on dev (TIES with one task)
dare           random weights, stretched the same way (DARE: drop and rescale)
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.core.errors import Missing
from cutaway.methods.graft.maths.select import (
    Mask,
    Params,
    proportional_sizes,
    random_mask,
    top_mask,
)

Loss = Callable[[], Tensor]


@dataclass(frozen=True, eq=False)
class TaskGradients:
    """Mean gradient and mean squared gradient over examples, by name."""

    mean: Params
    square: Params


@dataclass(frozen=True, eq=False)
class MaskInputs:
    """What a choice may look at: both checkpoints, and the task's gradients at the base."""

    base: Params
    tuned: Params
    slopes: TaskGradients | None = None

    @property
    def sizes(self) -> dict[str, int]:
        """How many weights each tensor has."""
        return {name: value.numel() for name, value in self.base.items()}

    def movement(self, name: str) -> Tensor:
        """How far each weight of a tensor has gone."""
        return (self.tuned[name].float() - self.base[name].float()).abs_()

    def moved(self, name: str) -> Tensor:
        """Which weights of a tensor are elsewhere than they were."""
        return self.tuned[name] != self.base[name]

    def need_slopes(self) -> TaskGradients:
        """The gradients; Missing when none were taken."""
        if self.slopes is None:
            raise Missing("This mask needs gradients of the task: none were taken.")
        return self.slopes


MaskRule = Callable[[MaskInputs, int, torch.Generator], Mask]


def task_gradients(params: Params, losses: Iterable[Loss]) -> TaskGradients:
    """Gradients of one example's loss at a time; the parameters must require gradients."""
    names = list(params)
    mean = {name: torch.zeros_like(params[name], dtype=torch.float32) for name in names}
    square = {name: value.clone() for name, value in mean.items()}
    seen = 0
    for loss in losses:
        found = torch.autograd.grad(loss(), [params[n] for n in names], allow_unused=True)
        seen += 1
        for name, grad in zip(names, found, strict=True):
            if grad is not None:
                mean[name].add_(grad)
                square[name].addcmul_(grad.float(), grad.float())
    if seen == 0:
        raise Missing("No example to take a gradient of: give at least one.")
    for name in names:
        mean[name].div_(seen)
        square[name].div_(seen)
    return TaskGradients(mean, square)


def _random(material: MaskInputs, keep: int, rng: torch.Generator) -> Mask:
    return random_mask(material.sizes, keep, rng=rng, first=material.moved)


def _movement(material: MaskInputs, keep: int, rng: torch.Generator) -> Mask:
    return top_mask(list(material.base), material.movement, keep)


def _grad_movement(material: MaskInputs, keep: int, rng: torch.Generator) -> Mask:
    mean = material.need_slopes().mean
    return top_mask(list(material.base), lambda n: mean[n].abs() * material.movement(n), keep)


def _fisher(material: MaskInputs, keep: int, rng: torch.Generator) -> Mask:
    square = material.need_slopes().square
    return top_mask(list(material.base), lambda n: square[n] * material.moved(n), keep)


def _uniform(material: MaskInputs, keep: int, rng: torch.Generator) -> Mask:
    dealt = {name: n for name, n in proportional_sizes(material.sizes, keep).items() if n}
    each = [top_mask([name], material.movement, n) for name, n in dealt.items()]
    return Mask({name: places for mask in each for name, places in mask.places.items()})


def _biases(material: MaskInputs, keep: int, rng: torch.Generator) -> Mask:
    """All the biases there are when they are fewer than asked for."""
    names = bias_names(list(material.base))
    total = sum(material.base[name].numel() for name in names)
    if total == 0:
        raise Missing("This model has no biases among the trained weights.")
    return top_mask(names, material.movement, min(keep, total))


def bias_names(names: Sequence[str]) -> list[str]:
    """The names of biases."""
    return [name for name in names if name.rpartition(".")[2] == "bias"]


MASKS: dict[str, MaskRule] = {
    "random": _random,
    "movement": _movement,
    "grad_movement": _grad_movement,
    "fisher": _fisher,
    "uniform": _uniform,
    "biases": _biases,
    "ties": _movement,
    "dare": _random,
}
RESCALED = frozenset({"ties", "dare"})
"""Masks whose change is stretched by a factor that is chosen on dev."""
NEED_GRADIENTS = frozenset({"grad_movement", "fisher"})
