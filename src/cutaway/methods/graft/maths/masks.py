"""The MASKS table: baseline masks of the same size as a learned mask.

random         random weights that changed, then any others
movement       the largest |tuned - base| (the paper's starting mask)
grad_movement  the largest |gradient x movement|, the gradient of the task loss at the base
fisher         the largest diagonal Fisher information of the task at the base, of
               weights that changed (FISH mask)
uniform        the largest movement within each tensor, the same share of what changed in it
biases         the largest movement among the biases (BitFit, cut to size)
ties           the largest movement, rescaled by a factor chosen on train and dev (TIES)
dare           random weights, rescaled in the same way (DARE: drop and rescale)
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

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
    """The inputs of a mask rule: both checkpoints, and the task's gradients at the base."""

    base: Params
    tuned: Params
    gradients: TaskGradients | None = None

    @property
    def sizes(self) -> dict[str, int]:
        """The number of weights of each tensor."""
        return {name: value.numel() for name, value in self.base.items()}

    @property
    def moved_sizes(self) -> dict[str, int]:
        """The number of weights of each tensor that changed."""
        return {name: int(self.moved(name).sum()) for name in self.base}

    def movement(self, name: str) -> Tensor:
        """|tuned - base| of one tensor."""
        return (self.tuned[name].float() - self.base[name].float()).abs_()

    def moved(self, name: str) -> Tensor:
        """Which weights of one tensor changed."""
        return self.tuned[name] != self.base[name]

    def moved_first(self, name: str, scores: Tensor) -> Tensor:
        """Scores of at least 0, with those of unchanged weights below all others."""
        return scores.masked_fill(~self.moved(name).reshape(scores.shape), -1.0)

    def need_gradients(self) -> TaskGradients:
        """The gradients; Missing when they were not computed."""
        if self.gradients is None:
            raise Missing("This mask needs gradients of the task, which were not computed.")
        return self.gradients


MaskRule = Callable[[MaskInputs, int, torch.Generator], Mask]


@dataclass(frozen=True, eq=False)
class GradientSums:
    """Sums of gradients and of their squares over the first `examples` examples, by name."""

    sum: dict[str, Tensor]
    square: dict[str, Tensor]
    examples: int = 0


def zero_gradient_sums(params: Params) -> GradientSums:
    """The sums over no example."""
    zero = {n: torch.zeros_like(value, dtype=torch.float32) for n, value in params.items()}
    return GradientSums(zero, {name: value.clone() for name, value in zero.items()})


def task_gradients(
    params: Params,
    losses: Iterable[Loss],
    sums: GradientSums | None = None,
    keep: Callable[[GradientSums], None] = lambda sums: None,
) -> TaskGradients:
    """Statistics of per-example gradients; the parameters must require gradients.

    The losses are those of the examples that aren't in `sums` yet; `keep` gets the sums after each.
    """
    names = list(params)
    sums = sums or zero_gradient_sums(params)
    for loss in losses:
        grads = torch.autograd.grad(loss(), [params[n] for n in names], allow_unused=True)
        for name, grad in zip(names, grads, strict=True):
            if grad is not None:
                sums.sum[name].add_(grad)
                sums.square[name].addcmul_(grad.float(), grad.float())
        sums = replace(sums, examples=sums.examples + 1)
        keep(sums)
    if sums.examples == 0:
        raise Missing("Gradients need at least one example.")
    for name in names:
        sums.sum[name].div_(sums.examples)
        sums.square[name].div_(sums.examples)
    return TaskGradients(sums.sum, sums.square)


def _random(inputs: MaskInputs, keep: int, rng: torch.Generator) -> Mask:
    return random_mask(inputs.sizes, keep, rng=rng, first=inputs.moved)


def _movement(inputs: MaskInputs, keep: int, rng: torch.Generator) -> Mask:
    return top_mask(list(inputs.base), inputs.movement, keep)


def _grad_movement(inputs: MaskInputs, keep: int, rng: torch.Generator) -> Mask:
    mean = inputs.need_gradients().mean

    def score(name: str) -> Tensor:
        return inputs.moved_first(name, mean[name].abs() * inputs.movement(name))

    return top_mask(list(inputs.base), score, keep)


def _fisher(inputs: MaskInputs, keep: int, rng: torch.Generator) -> Mask:
    square = inputs.need_gradients().square
    return top_mask(list(inputs.base), lambda n: inputs.moved_first(n, square[n]), keep)


def _uniform(inputs: MaskInputs, keep: int, rng: torch.Generator) -> Mask:
    counts = {name: n for name, n in proportional_sizes(inputs.moved_sizes, keep).items() if n}
    each = [top_mask([name], inputs.movement, n) for name, n in counts.items()]
    return Mask({name: indices for mask in each for name, indices in mask.indices.items()})


def _biases(inputs: MaskInputs, keep: int, rng: torch.Generator) -> Mask:
    """All biases that changed if there are fewer than `keep`."""
    names = bias_names(list(inputs.base))
    total = sum(inputs.moved_sizes[name] for name in names)
    if total == 0:
        raise Missing("This model has no biases among the changed weights.")
    return top_mask(names, inputs.movement, min(keep, total))


def bias_names(names: Sequence[str]) -> list[str]:
    """The names that are biases."""
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
"""Masks whose change is rescaled by the best of several factors."""
NEED_GRADIENTS = frozenset({"grad_movement", "fisher"})
