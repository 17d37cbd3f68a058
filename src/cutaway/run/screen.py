"""What the user sees while a recipe runs: progress and messages, on stderr only."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Advance(Protocol):
    """Call with the amount done; `note` stands behind the bar (tokens per second, say)."""

    def __call__(self, amount: float = 1, note: str = "") -> None: ...


@dataclass(frozen=True)
class Screen:
    """A place for messages and progress bars; a quiet one shows nothing."""

    quiet: bool = False

    @property
    def console(self) -> Console:
        """A console on stderr: stdout belongs to results."""
        return Console(stderr=True, quiet=self.quiet, soft_wrap=True, highlight=False)

    def say(self, text: str) -> None:
        """One line for the user."""
        self.console.print(text, markup=False)

    @contextmanager
    def progress(self, title: str, total: float) -> Iterator[Advance]:
        """A bar with elapsed and remaining time; plain lines where there is no terminal."""
        if self.quiet:
            yield lambda amount=1, note="": None
        elif sys.stderr.isatty():
            with _bar(self.console) as bar:
                task = bar.add_task(title, total=total, note="")
                yield lambda amount=1, note="": bar.update(task, advance=amount, note=note)
        else:
            lines = _Lines(self, title, total)
            yield lines.advance
            lines.end()


class _Lines:
    """Progress without a terminal: a line at most every ten seconds."""

    EVERY = 10.0

    def __init__(self, screen: Screen, title: str, total: float) -> None:
        self.screen, self.title, self.total = screen, title, total
        self.done, self.start, self.last = 0.0, time.monotonic(), time.monotonic()

    def advance(self, amount: float = 1, note: str = "") -> None:
        self.done += amount
        now = time.monotonic()
        if now - self.last < self.EVERY:
            return
        self.last = now
        left = (now - self.start) / max(self.done, 1e-9) * (self.total - self.done)
        self.screen.say(
            f"{self.title}: {self.done / max(self.total, 1e-9):4.0%}, "
            f"about {left:.0f} s left {note}".rstrip()
        )

    def end(self) -> None:
        self.screen.say(f"{self.title}: done in {time.monotonic() - self.start:.1f} s")


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
    )
