"""kill -9 just before each change that a long command makes on the disk.

Every rename, removal and new folder is a write point: between two of them nothing on the disk
changes but temporary files. Unfinished work is saved at every chance, so a command has hundreds of
points. It is started in an empty folder for each of them, killed there, and repeated.
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.forked import Start, in_child, load_everything, one_thread, saving_every
from bench.kill_commands import all_commands, differences, prepare, run_whole
from bench.report import row


def run(quick: bool, most: int | None = None, commands: list[str] | None = None) -> dict[str, Any]:
    """The write points of each command, and what differs after a kill at them.

    `most` points of a command are taken, spread evenly; all of them without it.
    """
    load_everything()
    with (
        tempfile.TemporaryDirectory(prefix="cutaway-points-") as work,
        one_thread(),
        saving_every(0.0, writing=0.0),
    ):
        folder = Path(work)
        starts = all_commands(prepare(folder))
        chosen = {name: start for name, start in starts.items() if name in (commands or starts)}
        most = 2 if quick else most
        found = {name: kill_at_points(name, one, folder, most) for name, one in chosen.items()}
    return {
        "title": "kill -9 before each change of the disk",
        "text": "The commands and the model of the kills above. A write point is a rename, a "
        "removal or a new folder; unfinished work is saved at every chance. `wrong`: rows, "
        "summaries and files of tensors that were lost, doubled or different in any digit after "
        "the command was killed at the point and repeated.",
        "table": [
            row(
                name,
                f"{f['killed']} of {f['points']} points",
                bar="0 wrong",
                met=f["wrong"] == 0,
            )
            | {"wrong": f["wrong"]}
            for name, f in found.items()
        ],
        "measured": found,
    }


def kill_at_points(name: str, start: Start, folder: Path, most: int | None) -> dict[str, Any]:
    """The command killed at its write points, each time in an empty folder, and repeated."""
    whole = run_whole(folder / "whole" / name, start)
    counted, wrong, examples = folder / "counted", 0, list[str]()
    in_child(counted, start, point=sys.maxsize)
    points = (counted / "points").stat().st_size
    shutil.rmtree(counted)
    step = 1 if most is None else max(1, points // most)
    chosen = range(1 + step // 2, points + 1, step)
    for point in chosen:
        place = folder / "killed"
        if not in_child(place, start, point=point).killed:
            raise RuntimeError(f"{name} has no write point {point}, it had {points}")
        wrongs = differences(whole.lines, run_whole(place, start).lines)
        wrong += len(wrongs)
        examples += [f"killed before change {point}: {one}" for one in wrongs[:2]]
        shutil.rmtree(place)
    print(f"   {name}: {len(chosen)} of {points} points, wrong {wrong}", file=sys.stderr)
    for one in examples[:6]:
        print(f"      {one[:300]}", file=sys.stderr)
    return {"points": points, "killed": len(chosen), "wrong": wrong, "examples": examples[:6]}
