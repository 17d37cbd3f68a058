"""`cutaway.shortcut`: linear maps between layers.

    cutaway.shortcut.fit(model="smollm2-135m", out="maps.safetensors")
    cutaway.shortcut.exit(model="smollm2-135m", shortcut="maps.safetensors").figure("exits")
    cutaway.shortcut.load("maps.safetensors").jump(9, 30)(hidden)

The verbs are made from the catalog: keyword arguments are the flags of the command line, and
`model` and `text` may be given as objects.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.recipe.python_api import group_function, group_functions

if TYPE_CHECKING:
    from cutaway.methods.shortcut.maps import ShortcutMaps
    from cutaway.models.lm import LM

__all__ = ["import_maps", "load", *group_functions("shortcut")]


def load(path: Path | str, model: "LM | None" = None) -> "ShortcutMaps":
    """The maps in a file, read one at a time; with a model, only if they were fitted on it."""
    from cutaway.methods.shortcut.maps import load_maps

    return load_maps(path, model and model.refresh_digest())


def import_maps(folder: Path | str, *, model: "LM", out: Path | str) -> "ShortcutMaps":
    """The reference's matrices (one tensor file `i_j` per pair) as a file of ours."""
    from cutaway.methods.shortcut.import_reference import import_reference_maps

    return import_reference_maps(Path(folder), model.refresh_digest(), Path(out))


def __getattr__(name: str) -> Callable[..., Any]:
    return group_function("shortcut", name)


def __dir__() -> list[str]:
    return __all__
