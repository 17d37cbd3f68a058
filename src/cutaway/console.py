"""The one place that writes to the terminal: results on stdout, messages and progress on stderr.

Names and texts come from files that others made, and a control character in them could move the
cursor, hide lines or set the window title. So each is replaced by a visible symbol.
"""

import json
import sys
import time
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from textwrap import indent
from typing import Any, Protocol, TextIO

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment

PLAIN_CONTROLS = "\n\t"


def printable(text: str) -> str:
    """The text with a visible symbol for every control character but line breaks and tabs."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    """`␛` for the escape character and so on; `�` for those without a symbol."""
    if character in PLAIN_CONTROLS or unicodedata.category(character) not in HIDDEN:
        return character
    code = ord(character)
    # Unicode's control pictures: U+2400 to U+241F, and U+2421 for delete.
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"


HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that terminals act on or can't show: controls, text direction, surrogates."""


def print_result(text: str) -> None:
    """Print a result on stdout, with a line break at its end."""
    sys.stdout.write(printable(text if text.endswith("\n") else text + "\n"))


def print_message(text: str) -> None:
    """Print a message for the user on stderr, with a line break at its end."""
    sys.stderr.write(printable(text if text.endswith("\n") else text + "\n"))


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout; control characters are escaped as JSON does it."""
    print_result(json_text(value))


def json_text(value: Any) -> str:
    """A value as indented JSON; control characters are escaped."""
    text = json.dumps(value, indent=2, default=str, ensure_ascii=False)
    if printable(text) != text:
        text = "".join(c if printable(c) == c else json.dumps(c)[1:-1] for c in text)
    return text


def print_json_list(texts: Iterable[str]) -> None:
    """Print a list of values, each the result of `json_text`, as `print_json` would."""
    before = "[\n"
    for text in texts:
        sys.stdout.write(printable(before + indent(text, "  ")))
        before = ",\n"
    print_result("[]" if before == "[\n" else "\n]")


class SafeConsole(RichConsole):
    """Rich's console; of control characters it writes only its own."""

    def __init__(self, **options: Any) -> None:
        stream = sys.stderr if options.pop("stderr", False) else sys.stdout
        options.setdefault("file", getattr(stream, "unfiltered", stream))
        super().__init__(highlight=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments of what is shown, with visible symbols for control characters."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(printable(text), style)


class PrintableStream:
    """A text stream that writes only printable characters: for warnings, logs and tracebacks.

    A carriage return at the start of a text is kept: progress bars of libraries begin with it.
    """

    def __init__(self, stream: TextIO) -> None:
        self.unfiltered = stream

    def write(self, text: str) -> int:
        """Write the text with visible symbols for control characters."""
        start = "\r" if text.startswith("\r") else ""
        self.unfiltered.write(start + printable(text[len(start) :]))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the stream's own."""
        return getattr(self.unfiltered, name)


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
        return SafeConsole(stderr=True, quiet=self.quiet, soft_wrap=True)

    def print(self, text: str) -> None:
        """Print one line for the user."""
        self.stderr.print(text, markup=False)

    @contextmanager
    def progress(self, title: str, total: float) -> Iterator[Advance]:
        """A bar with elapsed and remaining time; plain lines where there is no terminal."""
        title = printable(title)
        if self.quiet:
            yield lambda amount=1, note="": None
        elif sys.stderr.isatty():
            with _progress_bar(self.stderr) as bar:
                task = bar.add_task(title, total=total, note="")
                yield lambda amount=1, note="": bar.update(
                    task, advance=amount, note=printable(note)
                )
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
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
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
