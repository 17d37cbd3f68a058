"""Cutaway opens transformer language models the way a cutaway drawing opens an engine.

    import cutaway

    lm = cutaway.open("smollm2-135m")
    states = lm.read(["The cat sat on the mat."], layers="all", pool="last")
    result = cutaway.probe(model="smollm2-135m", data="gen:sentiment", layers="all")

Names are loaded when first used, so `import cutaway` is quick and needs no torch.
"""

from importlib import import_module
from typing import Any

from cutaway.catalog import GROUPS, VERBS

__version__ = "0.1.0"

# name -> module and attribute; the verbs come from the catalog
_OTHERS: dict[str, tuple[str, str]] = {
    "EWCCallback": ("cutaway.methods.inject.callback", "EWCCallback"),
    "open": ("cutaway.models.load", "open_model"),
    "results": ("cutaway.store.results", "results"),
}
_FUNCTIONS = {verb.name: verb for verb in VERBS.values() if "." not in verb.name}

__all__ = ["__version__", *sorted([*_OTHERS, *_FUNCTIONS, *GROUPS])]


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        from cutaway.recipe.python_api import python_function

        return python_function(_FUNCTIONS[name])
    if name in GROUPS:
        return import_module(f"cutaway.methods.{name}.api")
    if name in _OTHERS:
        module, attribute = _OTHERS[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module 'cutaway' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
