"""kill -9 at random moments of every long command: nothing is lost, nothing counted twice.

Each command runs once undisturbed. Then it is started again and again and killed at a random
moment, until one start comes to its end; its table must be the undisturbed one, row for row.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import cutaway
from bench.extract_setup import make_small
from bench.report import row
from cutaway.methods.graft import api as graft
from cutaway.store.results import results

KILLS = 50
"""Of each of the seven commands."""
# What differs from run to run and is no finding: the clock.
CLOCK = frozenset({"seconds", "tokens_per_second"})
ROWS = "rows-of-all-runs.json"
FEELING = {
    "task": "sst2", "data": "gen:sentiment?n=200", "template": "{text} All in all, it was",
    "words": ["bad", "good"], "shots": 8,
}  # fmt: skip


def run(quick: bool, kills: int | None = None) -> dict[str, Any]:
    """The kills of each command, how many starts it took, and whether the table is the same."""
    wanted = kills or (1 if quick else KILLS)
    with tempfile.TemporaryDirectory(prefix="cutaway-kills-") as work, one_thread():
        folder = Path(work)
        model = str(make_small(folder / "model", layers=2, width=32))
        commands = all_commands(model, str(folder / "tuned" / "out"))
        in_child(folder / "tuned", commands["finetune"])
        found = {name: attack(name, start, folder, wanted) for name, start in commands.items()}
    return {
        "title": "kill -9 at random moments",
        "text": "A llama-shaped model of 2 layers of 32 made on the spot. Each start is killed "
        "after a random time up to a tenth more than the undisturbed run took; a start that ends "
        "by itself is compared with the undisturbed table, and the command begins anew, until "
        "there were enough kills. Rows lost or doubled: rows of either table that the other lacks. "
        "Rows are compared to the last digit.",
        "table": [
            row(
                name,
                f"{f['kills']} kills, {f['ended']} ends, whole run {f['seconds']:.1f} s",
                bar="0 rows lost or doubled",
                met=f["wrong"] == 0,
            )
            | {"wrong rows": f["wrong"]}
            for name, f in found.items()
        ],
        "measured": found,
    }


Start = Callable[[Path], Any]


def all_commands(model: str, tuned: str) -> dict[str, Start]:
    """Every long command by name, small; each takes the place it writes to."""
    sums = "gen:arithmetic?n=60,ops=+,digits=1-2,dev=10,test=20"
    short = {"steps": 6, "every": 2, "batch": 8, "quiet": True}
    return {
        "probe": lambda at: cutaway.probe(
            model=model, data="gen:tense?n=200", classifier="logistic,lda", repeats=3,
            runs=str(at / "runs"), quiet=True,
        ),
        "nextword": lambda at: cutaway.nextword(
            model=model, data="gen:sentiment?n=200", class_words=["bad", "good"],
            prompt_text=" It was", features="f,phi_p,p", runs=str(at / "runs"), quiet=True,
        ),
        "shortcut fit": lambda at: cutaway.shortcut.fit(
            model=model, text="docs", limit=300, runs=str(at / "runs"), quiet=True
        ),
        "finetune": lambda at: graft.finetune(
            model=model, **FEELING, **short, lr=0.05, out=str(at / "out"), runs=str(at / "runs")
        ),
        "graft learn": lambda at: graft.learn(
            base=model, tuned=tuned, **FEELING, sparsity=1e-3, steps=4, baselines="random,movement",
            runs=str(at / "runs"), quiet=True,
        ),
        "fisher": lambda at: cutaway.fisher(
            model=model, text="docs", limit=60, out=str(at / "fisher.safetensors"),
            runs=str(at / "runs"), quiet=True,
        ),
        "inject": lambda at: cutaway.inject(
            model=model, data=sums, retain=["docs"], retain_limit=40, regulariser="none,ewc",
            strength=[1.0], fisher_examples=16, **short, runs=str(at / "runs"),
        ),
    }  # fmt: skip


def attack(name: str, start: Start, folder: Path, wanted: int) -> dict[str, float]:
    """Kills until there were enough; a table that came about in spite of them is compared."""
    print(f"   {name}", file=sys.stderr)
    rng = random.Random(name)
    whole = folder / name / "whole"
    begin = time.perf_counter()
    in_child(whole, start)
    seconds = time.perf_counter() - begin
    right, kills, ended, wrong, place = table(whole), 0, 0, 0, folder / name / "0"
    while kills < wanted:
        if in_child(place, start, rng.uniform(0, 1.1 * seconds)):
            wrong += differences(right, table(place))
            ended += 1
            place = folder / name / str(ended)
        else:
            kills += 1
    in_child(place, start)
    wrong += differences(right, table(place))
    return {"kills": kills, "ended": ended + 1, "wrong": wrong, "seconds": seconds}


def table(place: Path) -> list[str]:
    """The rows of all runs of a place as text, in order.

    Read by a child too: a process that has used polars can't be forked any more, its threads hang.
    """
    in_child(place, write_table)
    return json.loads((place / ROWS).read_text())


def write_table(place: Path) -> None:
    """The rows as JSON in the place."""
    rows = [
        line for record in results(place / "runs") for line in record.rows.iter_rows(named=True)
    ]
    found = sorted(str({k: v for k, v in line.items() if k not in CLOCK}) for line in rows)
    (place / ROWS).write_text(json.dumps(found))


def differences(right: list[str], found: list[str]) -> int:
    """Rows that only one of the two has; doubled ones count."""
    left = list(found)
    missing = 0
    for line in right:
        if line in left:
            left.remove(line)
        else:
            missing += 1
    return missing + len(left)


def in_child(place: Path, start: Start, after: float | None = None) -> bool:
    """Start in a process of its own, killed `after` seconds; whether it came to its end."""
    place.mkdir(parents=True, exist_ok=True)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.environ["CUTAWAY_HOME"] = str(place / "home")
            start(place)
            code = 0
        finally:
            os._exit(code)
    deadline = time.monotonic() + (after if after is not None else 600)
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            if status:
                raise RuntimeError(f"the work in {place.parent.name} failed with status {status}")
            return True
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


@contextmanager
def one_thread() -> Iterator[None]:
    """A forked process can't use the pool of threads its parent had."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
