import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cutaway.core.errors import RunError
from cutaway.engine import run_pieces
from cutaway.engine.process_pool import available_cores, threads_per_worker
from tests.engine import work


def test_the_cores_are_shared_out_and_nobody_gets_none(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert threads_per_worker(1) == available_cores()
    assert threads_per_worker(10_000) == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert threads_per_worker(1) == 1


def test_workers_know_their_share_before_torch_is_loaded(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert dict(run_pieces("local:1", work.setting, ["OMP_NUM_THREADS"])) == {
        "OMP_NUM_THREADS": "1"
    }


def test_work_that_cannot_travel_is_refused_with_what_to_do():
    with pytest.raises(RunError, match="use --engine local"):
        list(run_pieces("local:1", lambda n: n, [1]))


def test_a_script_without_a_guard_is_told_what_it_lacks(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from cutaway.engine import run_pieces\nprint(list(run_pieces('local:1', abs, [-1])))\n"
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert ran.returncode != 0
    assert "if __name__ == '__main__':" in ran.stderr


def test_workers_end_with_their_driver(tmp_path):
    """Killed with -9, a driver leaves no worker behind: each sees the end of its pipe."""
    code = (
        "import os, signal\n"
        "from cutaway.engine import run_pieces\n"
        "from tests.engine import work\n"
        "if __name__ == '__main__':\n"
        "    for _, pid in run_pieces('local:1', work.process, range(100)):\n"
        "        print(pid, flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    script = tmp_path / "driver.py"
    script.write_text(code)
    root = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=60,
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    worker = int(ran.stdout.split()[0])
    left = [psutil.Process(worker)] if psutil.pid_exists(worker) else []
    _, alive = psutil.wait_procs(left, 5)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]
