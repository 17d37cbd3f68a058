"""One real grid on two Ray workers and on two plain processes, each with one core.

Each engine gets the same states from the store and measures the same cells anew, after a small
grid that starts its workers. So what differs is where the pieces ran.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import cutaway
from bench.extract_setup import fresh_home, make_small
from bench.report import row, spread, told

ENGINES = ("local:2", "ray")
LAYERS, POOLS, LEAST = 4, ("mean", "last"), 5.0


def run(quick: bool, rounds: int = 2) -> dict[str, Any]:
    """Seconds of the whole command on each engine; the tables must be equal to the last bit."""
    rounds = 1 if quick else min(rounds, 2)
    size = {"rows": 60, "repeats": 2} if quick else {"rows": 800, "repeats": 10}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="cutaway-grid-") as work, fresh_home():
        folder = Path(work)
        model = str(make_small(folder / "model", LAYERS, 256))
        seconds: dict[str, list[float]] = {engine: [] for engine in ENGINES}
        tables = []
        for engine in ENGINES:
            # Workers are up, torch is loaded, and the states are in the store.
            grid(model, engine, folder / "warm" / engine, rows=size["rows"], repeats=2)
        for number in range(rounds):
            for engine in ENGINES:
                print(f"   round {number + 1}, {engine}", file=sys.stderr)
                start = time.perf_counter()
                tables.append(grid(model, engine, folder / str(number) / engine, **size))
                seconds[engine].append(time.perf_counter() - start)
    found = {engine: spread(values) for engine, values in seconds.items()}
    pieces = LAYERS * len(POOLS)
    each = 2 * found["ray"]["median"] / pieces
    same = all(table.equals(tables[0]) for table in tables)
    return {
        "title": "One grid on two Ray workers",
        "text": f"`cutaway probe`, {pieces} pieces (layers x poolers) of `mlp2` with "
        f"{size['repeats']} repeats on {size['rows']:,} rows of 256: about {each:.1f} s each on "
        f"one core. Whole command, states in the store, workers up; {rounds} rounds, engines take "
        "turns. `local:2` is two processes with a core each, `ray` two workers with a core each. "
        f"Load average before the start: {load:.1f}.",
        "table": [
            _line("local:2", found, each),
            row("the same table on all engines, to the last bit", "yes" if same else "no",
                bar="same table", met=same),
        ],
        "measured": {**found, "piece_seconds": each},
    }  # fmt: skip


def grid(model: str, engine: str, runs: Path, *, rows: int, repeats: int) -> Any:
    """The table of the grid."""
    found = cutaway.probe(
        model=model, data=f"gen:sentiment?n={rows}", layers="1-4", pool=list(POOLS),
        classifier="mlp2", repeats=repeats, baselines=["majority"], engine=engine,
        runs=str(runs), quiet=True,
    )  # fmt: skip
    return found.rows


def _line(rival: str, found: dict[str, Any], each: float) -> dict[str, Any]:
    """Two Ray workers beside another engine; judged where pieces are as long as promised."""
    ratio = found["ray"]["median"] / found[rival]["median"]
    shown = [told(found[engine], "s") for engine in ("ray", rival)]
    judged = each >= LEAST
    return row(f"two Ray workers beside {rival}", *shown, ratio, "<= 1.1x",
               ratio <= 1.1 if judged else None)  # fmt: skip
