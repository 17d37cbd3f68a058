"""Commands in forked processes that are killed: at a moment, or just before a change of the disk.

The parent has loaded every library once, so a process costs milliseconds instead of five seconds.
It must not have used polars or more than one thread of torch: their threads don't survive a fork.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from cutaway.catalog import VERBS
from cutaway.store import files, snapshots

Start = Callable[[Path], Any]
# Python names these events before it changes the disk.
CHANGES = frozenset({"os.rename", "os.remove", "os.mkdir", "os.rmdir"})
TICKS = os.sysconf("SC_CLK_TCK")
LONGEST = 600.0
# Modules that commands load while they run.
LATE = (
    "polars", "sklearn.linear_model", "scipy.optimize", "scipy.stats", "duckdb",
    "transformers.models.auto.modeling_auto", "transformers.models.llama.modeling_llama",
    "transformers.generation.utils",
)  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    killed: bool
    processor: float
    """Seconds of processor time."""
    error: bool = False


def load_everything() -> None:
    """Import what any command needs."""
    for verb in VERBS.values():
        verb.load()
    for name in LATE:
        import_module(name)


@contextmanager
def one_thread() -> Iterator[None]:
    """A forked process can't use the pool of threads its parent had."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def saving_every(seconds: float, *, writing: float | None = None) -> Iterator[None]:
    """Unfinished work is saved after so many seconds; `writing` replaces WORK_PER_WRITING."""
    before = snapshots.SAVE_SECONDS, snapshots.WORK_PER_WRITING
    snapshots.SAVE_SECONDS = seconds
    snapshots.WORK_PER_WRITING = before[1] if writing is None else writing
    try:
        yield
    finally:
        snapshots.SAVE_SECONDS, snapshots.WORK_PER_WRITING = before


def in_child(
    place: Path, start: Start, *, after: float | None = None, point: int | None = None
) -> Ended:
    """Run in a forked process; killed `after` so much processor time or before a write `point`."""
    place.mkdir(parents=True, exist_ok=True)
    child = os.fork()
    if child == 0:
        _be_child(place, start, point)
    deadline = time.monotonic() + LONGEST
    while True:
        done, status, used = os.wait4(child, os.WNOHANG)
        if done:
            seconds = used.ru_utime + used.ru_stime
            return Ended(os.WIFSIGNALED(status), seconds, os.waitstatus_to_exitcode(status) > 0)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise RuntimeError(f"the work in {place} takes longer than {LONGEST:g} s")
        if after is not None and processor_seconds(child) >= after:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.002)


def _be_child(place: Path, start: Start, point: int | None) -> None:
    code = 1
    try:
        os.environ["CUTAWAY_HOME"] = str(place / "home")
        log = os.open(place / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if point is not None:
            count_changes(place, point)
        start(place)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def count_changes(place: Path, point: int) -> None:
    """From here on, this process is killed just before its change number `point` of the disk.

    Their number so far is the size of the file `points`. Changes outside `place` don't count.
    """
    log = os.open(place / "points", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    inside, left = str(place), [point]

    def watch(event: str, details: tuple[Any, ...]) -> None:
        if event in CHANGES and str(details[0]).startswith(inside):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            os.write(log, b".")

    sys.addaudithook(watch)


def processor_seconds(process: int) -> float:
    """Processor time of a process that runs; 0 when it has just ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def pieces_on_disk(place: Path) -> int:
    """Finished files that a restart can use: those of unfinished runs and shards of activations."""
    kept = [
        path
        for path in (place / "runs").glob("*/*.partial/**/*")
        if path.is_file() and not any(files.is_temporary(p) for p in (path, *path.parents))
    ]
    return len(kept) + len(list((place / "home").glob("activations/*/shard-*.json")))
