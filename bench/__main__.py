"""Runs the benches: python -m bench [--only extract] [--quick] [--rows N] [--rounds N]."""

import argparse
import inspect
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.report import Lacking, circumstances, merge, page

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGE = HERE.parent / "docs" / "benchmarks.md"
Run = Callable[..., dict[str, Any]]


def main(words: list[str] | None = None) -> int:
    """0 when every bench ran to its end; bars that are missed are reported, not hidden."""
    given = arguments().parse_args(words)
    broken = 0
    for name, run in benches(given.only).items():
        try:
            entry = measure(name, run, vars(given))
        except Lacking as error:
            print(f"   not measured, it needs {error}", file=sys.stderr)
            continue
        broken += "error" in entry
        # Written after each bench: an interrupted run keeps what it has measured.
        results = merge(given.results, name, entry)
        given.page.write_text(page(results), encoding="utf-8")
    print(f"-- written: {given.results}, {given.page}", file=sys.stderr)
    return 1 if broken else 0


def arguments() -> argparse.ArgumentParser:
    """The options, each with its help."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", nargs="*", help="names, or beginnings of names, of benches")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument("--rows", type=int, help="sentences; each bench has its own default")
    parser.add_argument("--rounds", type=int, default=5, help="repeats of each measurement")
    parser.add_argument("--sets", type=Path, help="a folder with real labelled sets")
    parser.add_argument("--model", help="the model of benches that can use any")
    parser.add_argument("--keep-envs", action="store_true", help="keep the rivals' environments")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the JSON file to write")
    parser.add_argument("--page", type=Path, default=PAGE, help="the Markdown page to write")
    return parser


def benches(only: list[str] | None) -> dict[str, Run]:
    """Name -> run, for every module of this folder that has a `run`, in the order of names."""
    names = [p.stem for p in sorted(HERE.glob("*.py")) if not p.stem.startswith("_")]
    wanted = [n for n in names if not only or n.startswith(tuple(only))]
    found = {n: getattr(import_module(f"bench.{n}"), "run", None) for n in wanted}
    chosen = {name: run for name, run in found.items() if run is not None}
    if not chosen:
        raise SystemExit(f"No bench called {only!r}. There are: {', '.join(names)}.")
    return chosen


def measure(name: str, run: Run, options: dict[str, Any]) -> dict[str, Any]:
    """What the bench found, with when and where; its error when it broke; Lacking is passed on."""
    print(f"-- bench: {name}", file=sys.stderr)
    takes = inspect.signature(run).parameters
    start = time.perf_counter()
    try:
        found = run(**{key: value for key, value in options.items() if key in takes})
    except Lacking:
        raise
    except Exception as error:
        # One broken bench must not take the others' figures with it.
        traceback.print_exc()
        found = {"error": f"{type(error).__name__}: {error}"}
    seconds = round(time.perf_counter() - start, 1)
    print(f"   {seconds} s", file=sys.stderr)
    return {**circumstances(), "seconds": seconds, "quick": options["quick"], **found}


if __name__ == "__main__":
    sys.exit(main())
