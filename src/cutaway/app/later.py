"""Pages whose modules the first page can do without; loaded when the reader looks at it."""

from functools import cache
from importlib import import_module
from threading import Timer

PAGES = ("live", "new_run")
# The first page is on the screen by then.
SECONDS = 2.0


def show(name: str) -> None:
    """Draw one of PAGES."""
    import_module(f"cutaway.app.{name}").show()


@cache
def warm() -> Timer:
    """Load PAGES once per process, a little later, so that nobody waits for them."""
    timer = Timer(SECONDS, lambda: [import_module(f"cutaway.app.{name}") for name in PAGES])
    timer.daemon = True
    timer.start()
    return timer
