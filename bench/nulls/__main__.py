"""Counts the false claims: python -m bench.nulls [--only probe] [--runs 200]."""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from bench.nulls import (
    simulated_features,
    simulated_probes,
    simulated_shortcuts,
    simulated_studies,
    simulated_trainings,
    worlds,
)
from bench.nulls.tally import Counts, Rates, World, beyond_bar, merge, tally, totals

RESULTS = Path(__file__).parents[1] / "nulls.json"
WRITE_EVERY = 20
SIMULATED = 2
"""Simulated runs for each real one; they are cheap."""


def main(words: Sequence[str] | None = None) -> int:
    """0 when no kind of sentence makes false claims more often than the bar allows."""
    parser = argparse.ArgumentParser(prog="python -m bench.nulls", description=__doc__)
    parser.add_argument("--only", nargs="*", help="beginnings of titles of worlds: probe")
    parser.add_argument("--runs", type=int, default=200, help="real runs of each world")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the JSON file to write")
    given = parser.parse_args(words)
    rates: Rates = json.loads(given.results.read_text()) if given.results.exists() else {}
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CUTAWAY_HOME"] = f"{folder}/home"
        for world in every_world(Path(folder), given.only):
            counts: Counts = {}
            for seed in tally(world, range(given.runs * (1 if world.real else SIMULATED)), counts):
                print(f"\r{world.title}: {seed + 1} ", end="", file=sys.stderr, flush=True)
                # Written now and then: an interrupted run keeps what it has counted.
                if seed % WRITE_EVERY == WRITE_EVERY - 1:
                    rates = merge(rates, world, counts)
                    given.results.write_text(json.dumps(rates, indent=1) + "\n")
            print(*(f"\n   {k}, {w}: {c}" for (k, w), c in counts.items()), file=sys.stderr)
    return report(rates)


def every_world(folder: Path, only: Sequence[str] | None = None) -> list[World]:
    """The worlds whose title begins with one of these words."""
    simulated = (
        simulated_probes, simulated_features, simulated_shortcuts, simulated_trainings,
        simulated_studies,
    )  # fmt: skip
    found = [world for module in simulated for world in module.worlds()]
    found += worlds.worlds(folder)
    chosen = [world for world in found if not only or world.title.startswith(tuple(only))]
    if not chosen:
        titles = "; ".join(world.title for world in found)
        raise SystemExit(f"No world called {only!r}. There are: {titles}.")
    return chosen


def report(rates: Rates) -> int:
    """Print the share of false claims of each kind; 1 if one exceeds the bar."""
    for (key, wrong), (false, runs) in totals(rates).items():
        print(f"{key} ({wrong}): {false} of {runs} ({false / runs:.1%})")
    above = beyond_bar(rates)
    print("\n".join(["Above the bar:", *above]) if above else "None is above the bar.")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
