"""Throw-away environments: made by venv and pip, checked before anything large is fetched."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

ENVS = Path(__file__).parents[1] / ".envs"
DONE = "installed"
MINUTES = 15


class Unusable(Exception):
    """A rival that can't be installed or can't run here, and why."""


@contextmanager
def environment(name: str, *more: str, keep: bool = False) -> Iterator[Path]:
    """The Python of an environment with the package in it, and what it needs besides.

    One that was there before is used and left; one made here is removed unless it is to be kept.
    """
    folder = ENVS / name
    there = (folder / DONE).is_file()
    try:
        if not there:
            _make(folder, name, *more)
        yield folder / "bin" / "python"
    finally:
        if not there and not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _make(folder: Path, package: str, *more: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--no-input"]
    # Every rival gets the torch that ours has: another one would be another benchmark.
    torch = version("torch")
    wanted = [f"torch=={torch.partition('+')[0]}", package, *more]
    need_same_torch(_run([*pip, "--dry-run", *wanted]), torch)
    _run([*pip, "--quiet", *wanted])
    (folder / DONE).write_text(package)


def need_same_torch(said: str, torch: str) -> None:
    """Unusable unless pip would install exactly this build of torch."""
    listed = said.rpartition("Would install")[2]
    found = re.findall(r"(?<![\w-])torch-(\d\S*)", listed)
    if found != [torch]:
        raise Unusable(f"pip would install torch {found or 'nowhere'}, ours is {torch}")


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 * MINUTES)
    except subprocess.TimeoutExpired:
        raise Unusable(f"installing took more than {MINUTES} minutes") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise Unusable(f"it can't be installed: {said[-1][:200] if said else 'pip failed'}")
    return done.stdout
