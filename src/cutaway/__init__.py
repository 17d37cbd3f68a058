"""Cutaway opens transformer language models the way a cutaway drawing opens an engine.

    import cutaway

    lm = cutaway.open("smollm2-135m")
    states = lm.read(["The cat sat on the mat."], layers="all", pool="last")
    result = cutaway.probe(model="smollm2-135m", data="gen:sentiment", layers="all")

Names are loaded when first used, so `import cutaway` is quick and needs no torch.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# name -> (module, attribute; None for the module itself)
_PUBLIC: dict[str, tuple[str, str | None]] = {
    "EWCCallback": ("cutaway.methods.inject.callback", "EWCCallback"),
    "fisher": ("cutaway.methods.inject.fisher", "fisher"),
    "inject": ("cutaway.methods.inject.recipe", "inject"),
    "graft": ("cutaway.methods.graft.api", None),
    "nextword": ("cutaway.methods.nextword.recipe", "nextword"),
    "open": ("cutaway.models.load", "open_model"),
    "probe": ("cutaway.methods.probe.recipe", "probe"),
    "quad": ("cutaway.methods.nextword.quad", "quad"),
    "results": ("cutaway.store.results", "results"),
    "shortcut": ("cutaway.methods.shortcut.api", None),
}

__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'cutaway' has no attribute {name!r}")
    module_name, attribute = _PUBLIC[name]
    module = import_module(module_name)
    return module if attribute is None else getattr(module, attribute)


def __dir__() -> list[str]:
    return __all__
