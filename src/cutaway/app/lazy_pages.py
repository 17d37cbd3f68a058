"""Pages that are loaded when they are first opened, or shortly after the first page is drawn."""

from functools import cache
from importlib import import_module
from threading import Timer
from types import ModuleType
from typing import Any

LAZY_MODULES = ("method", "selection", "live", "new_run")
# Seconds; the first page has been drawn by then.
PRELOAD_DELAY = 2.0


def show_page(name: str, *arguments: Any) -> None:
    """Draw one of LAZY_MODULES."""
    load_page(name).show(*arguments)


def load_page(name: str) -> ModuleType:
    """One of LAZY_MODULES, imported after pandas.

    Streamlit imports pandas on first use, in any thread; plotly in another thread then finds it
    partially initialised and fails. Importing it here first makes every drawing thread wait.
    """
    import_module("pandas")
    return import_module(f"cutaway.app.{name}")


@cache
def preload() -> Timer:
    """Load LAZY_MODULES in the background, once per process, so that opening a page is quick."""
    timer = Timer(PRELOAD_DELAY, lambda: [load_page(name) for name in LAZY_MODULES])
    timer.daemon = True
    timer.start()
    return timer
