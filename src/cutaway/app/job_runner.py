"""`python -m cutaway.app.job_runner FOLDER`: runs one command and records its exit status.

The app may be closed during a run; this process stays with the command and writes `ended.json`
last. It imports nothing heavy.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from cutaway.console import print_message
from cutaway.store.files import write_json

JOB_FILE, ENDED_FILE, LOG_FILE, OUTPUT_FILE = "job.json", "ended.json", "log.txt", "out.txt"
# The environment variable with the digest of the spec that the command must give.
SPEC_DIGEST_VARIABLE = "CUTAWAY_SPEC_DIGEST"


def run_job(folder: Path) -> int:
    """The exit status of the job's command, written to the folder when it ends."""
    job = json.loads((folder / JOB_FILE).read_text(encoding="utf-8"))
    # Cancelling signals the whole process group; this process survives to record the status.
    # Unlike SIG_IGN, a handler is not inherited by the command, which must receive the signal.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    with (folder / LOG_FILE).open("ab") as log, (folder / OUTPUT_FILE).open("wb") as out:
        env = {**os.environ, SPEC_DIGEST_VARIABLE: job["digest"]}
        status = _run(job["argv"], env, log.fileno(), out.fileno())
    write_json(folder / ENDED_FILE, {"status": status, "at": time.time()})
    return status


def _run(argv: list[str], env: dict[str, str], log: int, out: int) -> int:
    try:
        child = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=log)
    except OSError as error:
        print_message(str(error))
        return 127
    return child.wait()


if __name__ == "__main__":
    sys.exit(run_job(Path(sys.argv[1])))
