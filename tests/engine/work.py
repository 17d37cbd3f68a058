"""Work for workers: importable, tiny, and able to fail in every way that matters.

A mark in a folder says how often a piece was started; workers share nothing else.
"""

import os
import signal
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from uuid import uuid4

from cutaway.core.errors import BadData


def square(number: int) -> int:
    return number * number


def slow_square(number: int) -> int:
    time.sleep(0.2)
    return number * number


def sixth(number: int) -> int:
    return 6 // number


def refuse(number: int) -> int:
    raise BadData(f"Row {number} can't be used.")


def process(_: int) -> int:
    time.sleep(0.05)
    return os.getpid()


def setting(name: str) -> str:
    return os.environ.get(name, "")


@dataclass(frozen=True)
class Counted:
    """Leaves a mark at every start, so that a test can count them."""

    folder: str

    def starts(self, piece: int) -> int:
        return len(list(Path(self.folder).glob(f"{piece}-*")))

    def __call__(self, piece: int) -> int:
        (Path(self.folder) / f"{piece}-{uuid4().hex}").touch()
        return self.work(piece, self.starts(piece))

    def work(self, piece: int, start: int) -> int:
        return piece * piece


class DiesOnce(Counted):
    """Its worker is killed at the first start of piece 3, as by the machine's memory guard."""

    def work(self, piece: int, start: int) -> int:
        if piece == 3 and start == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return piece * piece


class AlwaysDies(Counted):
    """Piece 3 takes its worker with it, always."""

    def work(self, piece: int, start: int) -> int:
        if piece == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return piece * piece


class FailsTwice(Counted):
    """Every piece fails at its first two starts."""

    def work(self, piece: int, start: int) -> int:
        if start < 3:
            raise OSError(f"the disk is away at start {start}")
        return piece * piece


class Slow(Counted):
    def work(self, piece: int, start: int) -> int:
        time.sleep(0.3)
        return piece * piece


@dataclass(frozen=True)
class Prepared:
    """Makes ready what all pieces share, as the hands of recipes do, and marks it."""

    folder: str

    @cached_property
    def ready(self) -> int:
        (Path(self.folder) / f"ready-{uuid4().hex}").touch()
        return os.getpid()

    def __call__(self, piece: int) -> int:
        time.sleep(0.1)
        return self.ready


class Stubborn:
    """A classifier that never learns; pieces with it fail, and say why."""

    def fit(self, rows: object, labels: object) -> None:
        raise ArithmeticError("it does not want to")

    def predict(self, rows: object) -> None:
        raise AssertionError("nobody asks before fitting")
