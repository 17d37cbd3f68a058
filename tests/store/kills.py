"""A process that does the store's jobs again and again, and is killed again and again.

    python -m tests.store.kills FOLDER

For each job, in FOLDER/<way>/<job>/<number>, it starts children

    points     one per write point, each killed one write point later than the one before
    times      fifty in the same folder, killed at random times
    together   six at once in the same folder, none killed, three times over

and prints how they ended, as JSON. All are forked from one parent that has loaded everything
once, so hundreds of deaths take seconds. A write point is a system call that changes the disk:
open to write, write (half of it gets through), fsync, rename, remove, make or remove a folder.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import torch

from cutaway.store import cache
from cutaway.store.activations import open_activations
from cutaway.store.artefacts import save_artefact
from cutaway.store.progress import Progress
from tests.store.samples import ADDRESS, keep

ROWS = 12
VALUES = torch.arange(ROWS * 4.0).reshape(ROWS, 4)
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir"}


def table_of(folder: Path):
    return open_activations({"model": "tiny"}, ROWS, folder / "tables")


def fill(folder: Path) -> None:
    """Computes what isn't there yet, four rows to a shard."""
    table = table_of(folder)
    todo = np.flatnonzero(~table.covered(["a", "b"]))
    with table.writer(shard_bytes=128) as writer:
        for rows in np.array_split(todo, max(1, len(todo) // 4)):
            writer.append(rows, {"a": VALUES[rows], "b": -VALUES[rows]})


def save(folder: Path) -> None:
    """A run, perhaps over one that is only half there."""
    keep(folder / "runs", files={"note.txt": b"text"})


def half_saved(folder: Path) -> None:
    """What an older program, or a hand, may have left where the run will be."""
    half = folder / "runs" / "probe" / ADDRESS
    half.mkdir(parents=True)
    (half / "rows.parquet").touch()
    Progress(half.with_name(ADDRESS + ".partial")).put("cell", [{"x": 1}])


def artefact(folder: Path) -> None:
    save_artefact(folder / "x.safetensors", {"w": torch.zeros(4)}, {"version": 1})
    save_artefact(folder / "x.safetensors", {"w": torch.ones(4)}, {"version": 2})


def pieces(folder: Path) -> None:
    for number in range(4):
        Progress(folder / "pieces").put(f"cell {number}", [{"value": number / 3}])


def prune(folder: Path) -> None:
    fill(folder)
    cache.prune(max_bytes=0, folder=folder / "tables")


JOBS = {job.__name__: job for job in (fill, save, artefact, pieces, prune)}


def die_at(point: int) -> None:
    """From here on, this process ends just before its write point number `point`."""
    left, write, sync = [point], os.write, os.fsync

    def step() -> bool:
        left[0] -= 1
        return left[0] == 0

    def half_write(handle, data):
        if step():
            write(handle, bytes(data)[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return write(handle, data)

    def late_sync(handle):
        if step():
            os.kill(os.getpid(), signal.SIGKILL)
        return sync(handle)

    def watch(event, details):
        opens = event == "open" and isinstance(details[2], int) and details[2] & os.O_CREAT
        if (event in CHANGES or opens) and step():
            os.kill(os.getpid(), signal.SIGKILL)

    os.write, os.fsync = half_write, late_sync
    sys.addaudithook(watch)


def child(job: str, folder: Path, point: int = 0) -> int:
    process = os.fork()
    if process == 0:
        status = 1
        try:
            if point:
                die_at(point)
            JOBS[job](folder)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return process


def ended(process: int) -> str:
    status = os.waitpid(process, 0)[1]
    return "killed" if os.WIFSIGNALED(status) else str(os.WEXITSTATUS(status))


def fresh(folder: Path, job: str, number: int) -> Path:
    place = folder / job / str(number)
    place.mkdir(parents=True)
    if job == "save":
        half_saved(place)
    return place


def points(job: str, folder: Path) -> list[str]:
    ends: list[str] = []
    while not ends or ends[-1] == "killed":
        ends.append(ended(child(job, fresh(folder, job, len(ends)), len(ends) + 1)))
    return ends


def times(job: str, folder: Path) -> list[str]:
    ends, rng, place = [], random.Random(0), fresh(folder, job, 0)
    for _ in range(50):
        process = child(job, place)
        time.sleep(rng.uniform(0.0, 0.03))
        os.kill(process, signal.SIGKILL)
        ends.append(ended(process))
    return ends


def together(job: str, folder: Path) -> list[str]:
    ends = []
    for number in range(3):
        place = fresh(folder, job, number)
        ends += [ended(process) for process in [child(job, place) for _ in range(6)]]
    return ends


WAYS = {way.__name__: way for way in (points, times, together)}

if __name__ == "__main__":
    torch.set_num_threads(1)
    ends = {
        f"{name} {job}": way(job, Path(sys.argv[1]) / name)
        for name, way in WAYS.items()
        for job in JOBS
    }
    sys.stdout.write(json.dumps(ends))
