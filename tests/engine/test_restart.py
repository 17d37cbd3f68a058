"""The driver is killed and started again: what was done stays done."""

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DRIVER = """
import os, signal, sys
from pathlib import Path
from cutaway.engine import run_pieces
from cutaway.store.progress import Progress
from tests.engine.work import Slow

engine, folder, die_after = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
if __name__ == "__main__":
    progress = Progress(folder / "progress")
    todo = [n for n in range(10) if str(n) not in progress.done()]
    for place, (piece, got) in enumerate(run_pieces(engine, Slow(str(folder / "starts")), todo)):
        progress.put(str(piece), [{"piece": piece, "value": got}])
        if place + 1 == die_after:
            os.kill(os.getpid(), signal.SIGKILL)
    print(sorted((row["piece"], row["value"]) for row in progress.rows()))
"""


def test_a_killed_driver_goes_on_where_it_was(elsewhere, tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    (tmp_path / "starts").mkdir()

    def drive(die_after: int) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, script, elsewhere, tmp_path, str(die_after)], timeout=120, text=True,
            capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    assert drive(die_after=4).returncode == -signal.SIGKILL
    again = drive(die_after=0)
    assert again.stdout.strip() == str([(n, n * n) for n in range(10)]), again.stderr
    # Only what was under way when the driver died was begun twice: a piece per core at most.
    starts = [path.name.partition("-")[0] for path in (tmp_path / "starts").iterdir()]
    assert len(starts) <= 10 + max(2, os.cpu_count() or 1)
