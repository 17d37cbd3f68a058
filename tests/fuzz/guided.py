"""Fuzzing that follows the code: atheris bends inputs towards branches nobody has been in yet.

`make fuzz` runs every reader; `python -m tests.fuzz.guided csv 20000` one of them. An input that
ends in anything but a value or one of our errors is written to `fuzz/` beside where it was
started, with its traceback on the console, and the status is not 0.

Not part of `make test`: it wants a process per reader and its own wheel. The ten thousand bent
inputs per reader of test_loaders.py are.
"""

import atexit
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

RUNS = 300_000
LONGEST = 4096


def main(words: list[str]) -> int:
    """Every reader, each in a process of its own, or the one that is named."""
    if words:
        return follow(words[0], int(words[1]) if len(words) > 1 else RUNS)
    from tests.fuzz.loaders import LOADERS

    broken = []
    for name in LOADERS:
        print(f"-- {name}", flush=True)
        done = subprocess.run([sys.executable, "-m", "tests.fuzz.guided", name], check=False)
        broken += [name] if done.returncode else []
    print(f"-- {len(LOADERS)} readers, {RUNS:,} inputs each; broken: {', '.join(broken) or 'none'}")
    return 1 if broken else 0


def follow(name: str, runs: int) -> int:
    """So many inputs for one reader; ends the process, unless there is no such reader."""
    import atheris

    # Whatever is loaded in here reports its branches, so nothing of ours may be loaded before.
    with atheris.instrument_imports(include=["cutaway"]):
        from cutaway.core.errors import CutawayError
        from tests.fuzz.loaders import LOADERS

    if name not in LOADERS:
        print(f"No reader called {name!r}. Known: {', '.join(LOADERS)}.", file=sys.stderr)
        return 2

    # In memory where there is some: thousands of files are written.
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    loader, place, corpus, found = (
        LOADERS[name], Path(tempfile.mkdtemp(dir=memory)), Path(tempfile.mkdtemp()), Path("fuzz")
    )  # fmt: skip
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    found.mkdir(exist_ok=True)
    for number, seed in enumerate(loader.seeds):
        (corpus / str(number)).write_bytes(seed)
    warnings.simplefilter("ignore")

    def once(data: bytes) -> None:
        try:
            loader.read(data, place)
        except CutawayError as error:
            assert str(error).strip(), "an error without a word"

    longest = max(LONGEST, *(2 * len(seed) for seed in loader.seeds))
    options = [f"-runs={runs}", f"-max_len={longest}", "-seed=1", "-verbosity=0"]
    options += [f"-artifact_prefix={found}/{name.replace(' ', '-')}-", str(corpus)]
    atheris.Setup([sys.argv[0], *options], once)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
