"""Background jobs: runs started by the app, each a process of the command line with a log.

`<runs>/.jobs/<id>/` holds job.json (the command), log.txt (its progress), out.txt (its output)
and, when it has ended, ended.json. All state is read from there, so it survives a restart.
"""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from cutaway.app.job_runner import ENDED_FILE, JOB_FILE, LOG_FILE, OUTPUT_FILE
from cutaway.core.errors import CutawayError, RunError
from cutaway.core.shell_words import join_words
from cutaway.store.files import disk_errors, make_folder, read_json, write_json

JOBS_FOLDER = ".jobs"
# The command line, run by the same interpreter as the app.
CLI_COMMAND = (sys.executable, "-m", "cutaway")
JobState = Literal["running", "done", "refused", "failed", "cancelled", "killed"]
# Exit status of the command line -> state of the job.
STATE_BY_EXIT_STATUS: dict[int, JobState] = {
    0: "done",
    2: "refused",
    130: "cancelled",
    -2: "cancelled",
}
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{6}")
_PERCENT = re.compile(r"^(?P<what>.*?):\s+(?P<percent>\d{1,3})%")
_TAIL = 64_000


@dataclass(frozen=True)
class BackgroundJob:
    """One command in the background."""

    folder: Path
    method: str
    words: tuple[str, ...]
    started: float
    pid: int
    born: float
    """When the process was created, to recognise a process id that was reused."""

    @property
    def id(self) -> str:
        """The job's folder name."""
        return self.folder.name

    @property
    def command(self) -> str:
        """The command as typed in a terminal."""
        return join_words(["cutaway", *self.words])


@dataclass(frozen=True)
class JobStatus:
    """The current state of a job."""

    state: JobState
    seconds: float
    share: float | None
    """The finished fraction of the current step, if the log reports it."""
    line: str
    """The last line of the log."""

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self.state != "running"


def start_job(runs: Path, method: str, words: Sequence[str], digest: str) -> BackgroundJob:
    """Start `cutaway WORDS` as a new process, which continues when the app is closed.

    The command refuses to run if its words don't give the spec with this digest.
    """
    folder = runs / JOBS_FOLDER / f"{int(time.time()):08x}-{secrets.token_hex(3)}"
    job = {
        "method": method, "words": list(words), "argv": [*CLI_COMMAND, *words], "digest": digest,
    }  # fmt: skip
    with disk_errors(folder):
        make_folder(folder)
        write_json(folder / JOB_FILE, job)
        with (folder / LOG_FILE).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "cutaway.app.job_runner", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
    # Reap the process when it ends.
    threading.Thread(target=process.wait, daemon=True).start()
    process_facts = {"started": time.time(), "pid": process.pid, "born": _created_at(process.pid)}
    write_json(folder / JOB_FILE, {**job, **process_facts})
    return read_job(folder)


def read_job(folder: Path) -> BackgroundJob:
    """The job in a folder."""
    stored = read_json(folder / JOB_FILE)
    try:
        return BackgroundJob(
            folder,
            str(stored["method"]),
            tuple(map(str, stored["words"])),
            float(stored["started"]),
            int(stored["pid"]),
            float(stored["born"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{str(folder / JOB_FILE)!r} is not a job of this app: {error}.") from None


def list_jobs(runs: Path) -> list[BackgroundJob]:
    """All jobs of a runs folder, newest first; other folders are ignored."""
    parent = runs / JOBS_FOLDER
    found = []
    for folder in sorted(parent.iterdir(), reverse=True) if parent.is_dir() else []:
        if _ID.fullmatch(folder.name):
            try:
                found.append(read_job(folder))
            except CutawayError:
                continue
    return found


def job_status(job: BackgroundJob) -> JobStatus:
    """The job's current state."""
    line, share = _last_log_line(job.folder / LOG_FILE)
    ended = job.folder / ENDED_FILE
    if ended.exists():
        stored = read_json(ended)
        state = STATE_BY_EXIT_STATUS.get(int(stored["status"]), "failed")
        return JobStatus(state, float(stored["at"]) - job.started, None, line)
    if is_running(job):
        return JobStatus("running", time.time() - job.started, share, line)
    return JobStatus("killed", time.time() - job.started, None, line)


def is_running(job: BackgroundJob) -> bool:
    """Whether the job's process is running."""
    try:
        process = psutil.Process(job.pid)
        same = abs(process.create_time() - job.born) < 1.5
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def cancel_job(job: BackgroundJob) -> None:
    """Interrupt the job like Ctrl-C: finished pieces are kept."""
    if is_running(job):
        os.killpg(os.getpgid(job.pid), signal.SIGINT)


def remove_job(job: BackgroundJob) -> None:
    """Delete the job's log; its results stay."""
    if not is_running(job):
        shutil.rmtree(job.folder, ignore_errors=True)


def run_address(job: BackgroundJob) -> str | None:
    """The address of the run the job made, from its output."""
    try:
        answer = json.loads((job.folder / OUTPUT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    found = answer.get("address") if isinstance(answer, dict) else None
    return found if isinstance(found, str) else None


def job_output(job: BackgroundJob) -> str:
    """What the command printed."""
    path = job.folder / OUTPUT_FILE
    return _tail(path) if path.exists() else ""


def job_log(job: BackgroundJob) -> str:
    """The end of the job's log."""
    path = job.folder / LOG_FILE
    return _tail(path) if path.exists() else ""


def _last_log_line(path: Path) -> tuple[str, float | None]:
    """The last line of the log, and the finished fraction it reports."""
    lines = [line.strip() for line in _tail(path).splitlines() if line.strip()]
    if not lines:
        return "", None
    found = _PERCENT.match(lines[-1])
    return lines[-1], min(int(found["percent"]), 100) / 100 if found else None


def _tail(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as handle:
        handle.seek(max(0, path.stat().st_size - _TAIL))
        return handle.read().decode("utf-8", errors="replace")


def _created_at(pid: int) -> float:
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        # It has already ended; the job runner has recorded its status.
        return 0.0
