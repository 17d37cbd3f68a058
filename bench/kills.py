"""kill -9 at every moment of every long command: nothing is lost, nothing counted twice.

Each command runs once undisturbed. Then it is started again and again and killed after one, two,
three ... hundredths of its processor time. Whenever a start comes to its end, its rows, its summary
and its files of tensors must be those of the undisturbed run, to the last digit.
"""

import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.forked import (
    Start,
    load_everything,
    one_thread,
    pieces_on_disk,
    saving_every,
)
from bench.kill_commands import all_commands, differences, prepare, run_unless_killed, run_whole
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
    return described(found)


def described(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The section of the page."""
    return {
        "title": "kill -9 at every moment",
        "text": "A llama-shaped model of 3 layers of 32 made on the spot. A start is killed after "
        "a share of the undisturbed run's processor time: 0.5 %, 1.5 %, ... 99.5 %, in random "
        "order. Starts follow each other in the same folder until one ends by itself before its "
        "kill; then its rows, summary and files of tensors are compared with the undisturbed "
        "run's, and the next start has an empty folder. `pieces`: kills that left something that "
        "the next start uses (pieces of the run, shards of activations). `wrong`: rows, summaries "
        "and files that were lost, doubled or different in any digit. Unfinished work is saved "
        f"every {1000 * SAVE_SECONDS:g} ms instead of every 30 s.",
        "table": [
            row(
                name,
                f"{f['kills']} kills, pieces in {f['pieces']}, run of {f['seconds']:.2f} s",
                bar="0 wrong, pieces in half",
                met=f["wrong"] == 0 and 2 * f["pieces"] >= f["kills"],
            )
            | {"wrong": f["wrong"]}
            for name, f in found.items()
        ],
        "measured": found,
    }


def attack(name: str, start: Start, folder: Path, wanted: int) -> dict[str, Any]:
    """The command killed at so many moments; starts that end by themselves are compared."""
    whole = run_whole(folder / "whole" / name, start)
    moments = [(n + 0.5) / wanted for n in range(wanted)]
    # In random order, so that short and long starts follow each other in a folder.
    random.Random(name).shuffle(moments)
    place, fresh, pieces, wrong, ends = folder / "killed", 0, 0, list[str](), 0
    while moments:
        fresh += not place.exists()
        ended = run_unless_killed(place, start, moments[-1] * whole.seconds)
        if ended is None:
            moments.pop()
            pieces += pieces_on_disk(place) > 0
        else:
            ends += 1
            wrong += differences(whole.lines, ended.lines)
            shutil.rmtree(place)
    wrong += differences(whole.lines, run_whole(place, start).lines)
    shutil.rmtree(place)
    print(
        f"   {name}: {whole.seconds:.2f} s, pieces in {pieces}, {len(wrong)} wrong", file=sys.stderr
    )
    for one in wrong[:4]:
        print(f"      {one[:300]}", file=sys.stderr)
    return {
        "kills": wanted,
        "pieces": pieces,
        "ends": ends + 1,
        "fresh": fresh,
        "wrong": len(wrong),
        "seconds": whole.seconds,
        "examples": wrong[:4],
    }
