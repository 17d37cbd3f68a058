"""Compare the named parameters of several models."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from cutaway.core.errors import Mismatch

if TYPE_CHECKING:
    from torch import Tensor

    Params = Mapping[str, Tensor]

WeightGroup = tuple[int, str]
"""Layer and module."""


def check_same_parameters(anchor: "Params", **others: "Params") -> None:
    """Raise Mismatch unless every mapping has the names and shapes of `anchor`."""
    for label, other in others.items():
        _check_same_names(anchor, other, label)
        for name, tensor in anchor.items():
            if tensor.shape != other[name].shape:
                raise Mismatch(
                    f"{label}[{name!r}] has shape {tuple(other[name].shape)}, "
                    f"expected {tuple(tensor.shape)}: these are not the same architecture."
                )


def weight_drift(
    params: "Params", anchor: "Params", locate: Callable[[str], WeightGroup]
) -> dict[WeightGroup, float]:
    """How far each group of weights moved, relative to its norm: |w - w0| / |w0|."""
    # Imported here: the names of parameters can be compared without torch.
    from cutaway.core.float64 import to_float64

    check_same_parameters(anchor, params=params)
    moved: dict[WeightGroup, float] = {}
    size: dict[WeightGroup, float] = {}
    for name, start in anchor.items():
        group = locate(name)
        step = to_float64(params[name].detach()) - to_float64(start)
        moved[group] = moved.get(group, 0.0) + float(step.square().sum())
        size[group] = size.get(group, 0.0) + float(to_float64(start).square().sum())
    return {
        group: (value / size[group]) ** 0.5 if size[group] else 0.0
        for group, value in sorted(moved.items())
    }


def _check_same_names(anchor: "Params", other: "Params", label: str) -> None:
    missing, extra = sorted(set(anchor) - set(other)), sorted(set(other) - set(anchor))
    if missing or extra:
        differences = [f"{label} lacks {missing[:3]!r}"] if missing else []
        differences += [f"{label} also has {extra[:3]!r}"] if extra else []
        raise Mismatch(f"Parameter names differ: {'; '.join(differences)} (first three shown).")
