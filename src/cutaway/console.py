"""Progress bars and messages for the user, on stderr only, without those of transformers."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from rich.console import Console as RichConsole
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Advance(Protocol):
    """Call with the amount done; `note` is shown after the bar (tokens per second, for example)."""

    def __call__(self, amount: float = 1, note: str = "") -> None: ...


@dataclass(frozen=True)
class Console:
    """Messages and progress bars; a quiet console shows nothing."""

    quiet: bool = False

    @property
    def stderr(self) -> RichConsole:
        """Rich's console on stderr: stdout is for results."""
        return RichConsole(stderr=True, quiet=self.quiet, soft_wrap=True, highlight=False)

    def print(self, text: str) -> None:
        """Print one line for the user."""
        self.stderr.print(text, markup=False)

    @contextmanager
    def progress(self, title: str, total: float) -> Iterator[Advance]:
        """A bar with elapsed and remaining time; plain lines where there is no terminal."""
        if self.quiet:
            yield lambda amount=1, note="": None
        elif sys.stderr.isatty():
            with _progress_bar(self.stderr) as bar:
                task = bar.add_task(title, total=total, note="")
                yield lambda amount=1, note="": bar.update(task, advance=amount, note=note)
        else:
            lines = _PlainProgress(self, title, total)
            yield lines.advance
            lines.end()


@dataclass(frozen=True)
class _Audience:
    """The console of the current run, and what it has shown already."""

    console: Console
    shown: set[str] = field(default_factory=set)


_AUDIENCE: ContextVar[_Audience | None] = ContextVar("audience", default=None)


@contextmanager
def messages_on(console: Console) -> Iterator[None]:
    """Within the block `show_message` prints on this console, each text once."""
    token = _AUDIENCE.set(_Audience(console))
    try:
        yield
    finally:
        _AUDIENCE.reset(token)


def show_message(text: str) -> None:
    """A line for the user from code that has no console: on that of the run, or on stderr."""
    audience = _AUDIENCE.get()
    if audience is None:
        Console().print(text)
    elif text not in audience.shown:
        audience.shown.add(text)
        audience.console.print(text)


class _PlainProgress:
    """Progress without a terminal: a line at most every ten seconds."""

    EVERY = 10.0

    def __init__(self, console: Console, title: str, total: float) -> None:
        self.console, self.title, self.total = console, title, total
        self.done, self.start, self.last = 0.0, time.monotonic(), time.monotonic()

    def advance(self, amount: float = 1, note: str = "") -> None:
        self.done += amount
        now = time.monotonic()
        if now - self.last < self.EVERY:
            return
        self.last = now
        left = (now - self.start) / max(self.done, 1e-9) * (self.total - self.done)
        self.console.print(
            f"{self.title}: {self.done / max(self.total, 1e-9):4.0%}, "
            f"about {left:.0f} s left {note}".rstrip()
        )

    def end(self) -> None:
        self.console.print(f"{self.title}: done in {time.monotonic() - self.start:.1f} s")


def _progress_bar(console: RichConsole) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
    )


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Within the block transformers shows no progress bars and no warnings."""
    from transformers.utils import logging as their_logging

    logging: Any = their_logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
