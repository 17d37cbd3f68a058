"""Compare the named parameters of several models."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cutaway.core.errors import Mismatch

if TYPE_CHECKING:
    from torch import Tensor

    Params = Mapping[str, Tensor]


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


def _check_same_names(anchor: "Params", other: "Params", label: str) -> None:
    missing, extra = sorted(set(anchor) - set(other)), sorted(set(other) - set(anchor))
    if missing or extra:
        differences = [f"{label} lacks {missing[:3]!r}"] if missing else []
        differences += [f"{label} also has {extra[:3]!r}"] if extra else []
        raise Mismatch(f"Parameter names differ: {'; '.join(differences)} (first three shown).")
