"""What decides the answer of an object given from Python, in words: never where it lies.

Classes and functions are told by their source, estimators by their parameters, modules by their
weights, arrays by their values. What can't be looked into is told by a word that never comes again,
so that it is measured anew rather than taken for something else.
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
    """A text that is the same for objects that do the same, and another one for all others."""
    return _FingerprintWriter().text(value)


class _FingerprintWriter:
    """Reads one object through; what it meets a second time is named, not read again."""

    def __init__(self) -> None:
        self.met: dict[int, int] = {}
        self.kept: list[Any] = []

    def text(self, value: Any) -> str:
        """The text of a value of any kind."""
        if isinstance(value, SCALAR_TYPES):
            return repr(value)
        if id(value) in self.met:
            return f"<{self.met[id(value)]} again>"
        self.met[id(value)] = len(self.met)
        # Held while we read: the next object must not get the address of one that is gone.
        self.kept.append(value)
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{self.text(k)}: {self.text(v)}' for k, v in value.items())}}}"
        if isinstance(value, COLLECTION_TYPES):
            found = [self.text(one) for one in value]
            ordered = isinstance(value, list | tuple)
            return f"{type(value).__name__}[{', '.join(found if ordered else sorted(found))}]"
        if isinstance(value, type):
            return self._class(value)
        return self._code(value) if callable(value) and _is_code(value) else self._thing(value)

    def _class(self, kind: type) -> str:
        """A class by its name, with its source and that of all it inherits from."""
        own = [one for one in kind.__mro__ if not _is_installed_code(one)]
        return " ".join([_qualified_name(kind), *(_source_digest(one) for one in own)])

    def _code(self, value: Any) -> str:
        """A function by its source, its defaults, and what it takes from around it."""
        if isinstance(value, functools.partial):
            return f"partial {self.text([value.func, value.args, value.keywords])}"
        if inspect.ismethod(value):
            return f"method {self.text([value.__func__, value.__self__])}"
        if _is_installed_code(value) or inspect.ismodule(getattr(value, "__self__", None)):
            return _qualified_name(value)
        if not inspect.isfunction(value):
            return _unique_token()
        around = inspect.getclosurevars(value)
        taken = {**around.nonlocals, **around.globals}
        used = {name: one for name, one in sorted(taken.items()) if not inspect.ismodule(one)}
        settings = [value.__defaults__, value.__kwdefaults__, used]
        return f"{_qualified_name(value)} {_source_digest(value)} {self.text(settings)}"

    def _thing(self, value: Any) -> str:
        """An instance by its class and what it holds."""
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
        """A torch module: its parts, their classes and settings, and every weight."""
        from torch.nn.parameter import is_lazy

        from cutaway.models.weight_checksum import checksum

        every = [*module.named_parameters(), *module.named_buffers()]
        held = {name: value for name, value in every if not is_lazy(value)}
        parts = [
            [name, type(part), {k: v for k, v in vars(part).items() if not k.startswith("_")}]
            for name, part in module.named_modules()
        ]
        return f"{module!r} {checksum(held)} {self.text(parts)}"


def _is_code(value: Any) -> bool:
    return inspect.isroutine(value) or isinstance(value, functools.partial)


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
    """The digest of the source; without one, a word that never comes again."""
    try:
        return hashlib.sha256(inspect.getsource(code).encode()).hexdigest()
    except (OSError, TypeError):
        return _unique_token()


def _unique_token() -> str:
    return uuid.uuid4().hex


def _is_installed_code(code: Any) -> bool:
    """Whether it comes with Python or from an installed package: its name is enough."""
    module = str(getattr(code, "__module__", None) or "")
    file = getattr(sys.modules.get(module), "__file__", None)
    if not _is_defined_in(sys.modules.get(module), code):
        return False
    if file is None:
        return module in sys.stdlib_module_names
    return any(Path(file).is_relative_to(one) for one in _site_packages())


def _is_defined_in(module: Any, code: Any) -> bool:
    """Whether it is what its module has under its name: one made in a function is not."""
    for name in str(getattr(code, "__qualname__", "")).split("."):
        module = getattr(module, name, None)
    return module is code


@functools.cache
def _site_packages() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({Path(sysconfig.get_path(name)) for name in names})
