"""Commands as a user starts them: each in a process of its own, by the clock."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.extract_setup import BUNDLED

CUTAWAY = str(Path(sys.executable).with_name("cutaway"))
# The model opened: what the process then takes (the floor of every command that opens it), and
# the seconds that took once the libraries were loaded.
OPEN = f"""
import json, time, transformers.models.auto.modeling_auto, transformers.models.llama.modeling_llama
from pathlib import Path
from cutaway.models.load import open_model
start = time.perf_counter()
lm = open_model({BUNDLED!r})
seconds = time.perf_counter() - start
# Weights are mapped from their file: they count once they were looked at.
for weight in lm.module.parameters():
    weight.sum()
kilobytes = int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0])
print(json.dumps({{"seconds": seconds, "megabytes": kilobytes / 1024}}))
"""
# A user's Python keeps what it has compiled; an empty value is the same as none.
KEEPS = {"PYTHONDONTWRITEBYTECODE": ""}


@dataclass(frozen=True)
class Took:
    """What one process said on stdout and what it took."""

    said: str
    seconds: float
    peak: float
    """Megabytes, the most it had at once."""
    processor: float = 0.0
    """Seconds of user and system time."""

    def json(self) -> Any:
        """What it said with --json."""
        return json.loads(self.said)


def took(words: list[str]) -> Took:
    """One process, from its start to its end; RuntimeError with its last words when it fails."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as wrong:
        start = time.perf_counter()
        child = subprocess.Popen(words, stdout=out, stderr=wrong, env={**os.environ, **KEEPS})
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        wrong.seek(0)
        if child.returncode:
            raise RuntimeError(f"{' '.join(words)[:300]}: {wrong.read()[-300:]}")
        return Took(out.read(), seconds, used.ru_maxrss / 1024, used.ru_utime + used.ru_stime)


# A process counts at least as much memory as the one that started it: a small one starts it.
LAUNCH = """
import json, os, subprocess, sys, time
start = time.perf_counter()
child = subprocess.Popen(sys.argv[2:])
_, status, used = os.wait4(child.pid, 0)
found = [time.perf_counter() - start, used.ru_maxrss / 1024, used.ru_utime + used.ru_stime]
open(sys.argv[1], "w").write(json.dumps(found))
os._exit(os.waitstatus_to_exitcode(status) & 255)
"""


def took_alone(words: list[str]) -> Took:
    """As `took`, with the memory of the process itself even if it is less than that of this one."""
    with tempfile.TemporaryDirectory(prefix="cutaway-took-") as work:
        file = Path(work) / "used"
        said = took([sys.executable, "-S", "-c", LAUNCH, str(file), *words]).said
        return Took(said, *json.loads(file.read_text()))
