"""Modules that the first paint can do without; loaded when the reader looks at it."""

from functools import cache
from importlib import import_module
from threading import Timer
from types import ModuleType
from typing import Any

LAZY_MODULES = ("method", "picked", "live", "new_run")
# The first page is on the console by then.
PRELOAD_DELAY = 2.0


def show_page(name: str, *given: Any) -> None:
    """Draw what one of MODULES shows."""
    load_page(name).show(*given)


def load_page(name: str) -> ModuleType:
    """One of MODULES, with pandas whole before it.

    Streamlit loads pandas on first use, in whichever thread comes first; plotly, in another one,
    then finds it half loaded and fails. Here every thread that will draw waits until it is whole.
    """
    import_module("pandas")
    return import_module(f"cutaway.app.{name}")


@cache
def preload() -> Timer:
    """Load MODULES once per process, a little later, so that nobody waits for them."""
    timer = Timer(PRELOAD_DELAY, lambda: [load_page(name) for name in LAZY_MODULES])
    timer.daemon = True
    timer.start()
    return timer
