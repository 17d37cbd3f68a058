"""Fingerprints of Python objects: equal for objects that compute the same, stable across runs.

Classes and functions are identified by their source, estimators by their parameters, torch modules
by their weights, arrays by their values. Anything else, and functions that capture variables, gets
a random fingerprint: its results are computed again rather than mistaken for another object's.
"""

import functools
import hashlib
import inspect
import sys
import sysconfig
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCALAR_TYPES = (type(None), bool, int, float, complex, str, bytes)
COLLECTION_TYPES = (list, tuple, set, frozenset)


def fingerprint(value: Any) -> str:
    """A text that is equal for objects that compute the same and different for all others."""
    return _FingerprintWriter().text(value)


class _FingerprintWriter:
    """Writes the fingerprint of one object; an object met twice is written once."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.references: list[Any] = []

    def text(self, value: Any) -> str:
        """The fingerprint of a value of any kind."""
        if isinstance(value, SCALAR_TYPES):
            return repr(value)
        if id(value) in self.numbers:
            return f"<object {self.numbers[id(value)]}>"
        self.numbers[id(value)] = len(self.numbers)
        # Referenced until the end, so that no later object gets the same id.
        self.references.append(value)
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{self.text(k)}: {self.text(v)}' for k, v in value.items())}}}"
        if isinstance(value, COLLECTION_TYPES):
            parts = [self.text(one) for one in value]
            ordered = isinstance(value, list | tuple)
            return f"{type(value).__name__}[{', '.join(parts if ordered else sorted(parts))}]"
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, functools.partial):
            return f"partial {self.text([value.func, value.args, value.keywords])}"
        return self._function(value) if inspect.isroutine(value) else self._instance(value)

    def _class(self, kind: type) -> str:
        """A class by its name, and the source of itself and of the classes it inherits from."""
        own = [one for one in kind.__mro__ if not _is_installed_code(one)]
        return " ".join([_qualified_name(kind), *(_source_digest(one) for one in own)])

    def _function(self, value: Any) -> str:
        """A function by its source and defaults, if it captures no variables."""
        if inspect.ismethod(value):
            return f"method {self.text([value.__func__, value.__self__])}"
        if _is_installed_code(value):
            return _qualified_name(value)
        if not inspect.isfunction(value) or _captures_variables(value):
            return _unique_token()
        defaults = self.text([value.__defaults__, value.__kwdefaults__])
        return f"{_qualified_name(value)} {_source_digest(value)} {defaults}"

    def _instance(self, value: Any) -> str:
        """An instance by its class and its attributes."""
        kind = self._class(type(value))
        if hasattr(value, "state_dict") and hasattr(value, "named_modules"):
            return f"{kind} {self._module(value)}"
        if callable(get_params := getattr(value, "get_params", None)):
            return f"{kind} {self.text(dict(sorted(get_params().items())))}"
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            return f"{kind} {_array_digest(value)}"
        if _is_installed_code(type(value)) or not hasattr(value, "__dict__"):
            return f"{kind} {_unique_token()}"
        return f"{kind} {self.text(dict(sorted(vars(value).items())))}"

    def _module(self, module: Any) -> str:
        """A torch module by the classes and settings of its submodules, and by its weights."""
        from torch.nn.parameter import is_lazy

        from cutaway.models.digests import checksum

        every = [*module.named_parameters(), *module.named_buffers()]
        held = {name: value for name, value in every if not is_lazy(value)}
        parts = [
            [name, type(part), {k: v for k, v in vars(part).items() if not k.startswith("_")}]
            for name, part in module.named_modules()
        ]
        return f"{module!r} {checksum(held)} {self.text(parts)}"


def _captures_variables(function: Any) -> bool:
    """Whether a function uses variables from around it, other than modules."""
    around = inspect.getclosurevars(function)
    return any(
        not inspect.ismodule(v) for v in [*around.nonlocals.values(), *around.globals.values()]
    )


def _array_digest(value: Any) -> str:
    """An array or tensor by type, shape and values."""
    import numpy as np

    found = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    if found.dtype.hasobject:
        return _unique_token()
    held = hashlib.sha256(np.ascontiguousarray(found).tobytes()).hexdigest()
    return f"{found.dtype} {found.shape} {held}"


def _qualified_name(code: Any) -> str:
    return f"{code.__module__}.{getattr(code, '__qualname__', code)}"


def _source_digest(code: Any) -> str:
    """The digest of the source; a random token when there is none."""
    try:
        return hashlib.sha256(inspect.getsource(code).encode()).hexdigest()
    except (OSError, TypeError):
        return _unique_token()


def _unique_token() -> str:
    return uuid.uuid4().hex


def _is_installed_code(code: Any) -> bool:
    """Whether code comes with Python or an installed package, so that its name identifies it."""
    module = str(getattr(code, "__module__", None) or "")
    file = getattr(sys.modules.get(module), "__file__", None)
    if not _is_defined_in(sys.modules.get(module), code):
        return False
    if file is None:
        return module in sys.stdlib_module_names
    return any(Path(file).is_relative_to(one) for one in _site_packages())


def _is_defined_in(module: Any, code: Any) -> bool:
    """Whether a module has this very object under its name; not so for one made in a function."""
    for name in str(getattr(code, "__qualname__", "")).split("."):
        module = getattr(module, name, None)
    return module is code


@functools.cache
def _site_packages() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({Path(sysconfig.get_path(name)) for name in names})
