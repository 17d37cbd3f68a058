"""kill -9 at every moment of every long command: nothing is lost, nothing counted twice.

Each command runs once undisturbed. Then it is started in an empty folder and killed after one, two,
... hundredths of its processor time, and started again without a kill. Its rows, its summary and
its files of tensors must be those of the undisturbed run, to the last digit.
"""

import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.forked import (
    Start,
    in_child,
    load_everything,
    one_thread,
    pieces_on_disk,
    saving_every,
)
from bench.kill_commands import all_commands, differences, prepare, run_whole
from bench.report import row

KILLS = 100
"""Of each command."""
SAVE_SECONDS = 0.02
"""Between two snapshots; 30 in real runs, which take hours and not a second."""


def run(quick: bool, kills: int | None = None, commands: list[str] | None = None) -> dict[str, Any]:
    """The kills of each command, how often pieces were on disk, and how many rows differ."""
    wanted = kills or (2 if quick else KILLS)
    load_everything()
    with (
        tempfile.TemporaryDirectory(prefix="cutaway-kills-") as work,
        one_thread(),
        saving_every(SAVE_SECONDS),
    ):
        folder = Path(work)
        starts = all_commands(prepare(folder))
        chosen = {name: start for name, start in starts.items() if name in (commands or starts)}
        found = {name: attack(name, start, folder, wanted) for name, start in chosen.items()}
    return {
        "title": "kill -9 at every moment",
        "text": "A llama-shaped model of 3 layers of 32 made on the spot. Each start is in an "
        "empty folder and is killed after a share of the undisturbed run's processor time: 0.5 %, "
        "1.5 %, ... 99.5 %. Then the command is repeated without a kill. `pieces` are kills that "
        "left something that the repetition uses (pieces of the run, shards of activations), "
        "`wrong` the rows, summaries and files of tensors that were lost, doubled or different "
        "in any digit, over all kills. Unfinished work is saved every "
        f"{1000 * SAVE_SECONDS:g} ms instead of every 30 s. The repetition takes the processor "
        "time in the last column, as a share of the undisturbed run, on average.",
        "table": [
            row(
                name,
                f"{f['kills']} kills, pieces in {f['pieces']}, run of {f['seconds']:.2f} s",
                bar="0 wrong, pieces in half",
                met=f["wrong"] == 0 and 2 * f["pieces"] >= f["kills"],
            )
            | {"wrong": f["wrong"], "repetition": f"{f['repetition']:.0%}"}
            for name, f in found.items()
        ],
        "measured": found,
    }


def attack(name: str, start: Start, folder: Path, wanted: int) -> dict[str, Any]:
    """The command killed at so many moments spread evenly over its run, each followed by a rest."""
    whole = run_whole(folder / "whole" / name, start)
    seconds = whole.seconds
    moments = [(n + 0.5) / wanted for n in range(wanted)]
    # So that a change of the machine's speed doesn't affect one part of the run only.
    random.Random(name).shuffle(moments)
    pieces, wrong, examples, again = 0, 0, list[str](), 0.0
    for share in moments:
        place = folder / "killed"
        killed = kill_at(place, start, share * seconds)
        pieces += pieces_on_disk(place) > 0
        repeated = run_whole(place, start)
        again += repeated.seconds
        wrongs = differences(whole.lines, repeated.lines)
        wrong += len(wrongs)
        examples += [f"killed after {killed:.2f} s: {one}" for one in wrongs[:2]]
        shutil.rmtree(place)
    print(f"   {name}: {seconds:.2f} s, pieces in {pieces}, wrong {wrong}", file=sys.stderr)
    for one in examples[:6]:
        print(f"      {one[:300]}", file=sys.stderr)
    return {
        "kills": wanted,
        "pieces": pieces,
        "wrong": wrong,
        "seconds": seconds,
        "repetition": again / wanted / seconds,
        "examples": examples[:6],
    }


def kill_at(place: Path, start: Start, seconds: float) -> float:
    """Start and kill; a run that ends before that is repeated and killed a little earlier."""
    while not in_child(place, start, after=seconds).killed:
        shutil.rmtree(place)
        seconds *= 0.95
    return seconds
