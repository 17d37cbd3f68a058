"""The scheduler with 10,000 pieces on 64 workers, on a clock that isn't real.

The engine's own desk hands out the pieces and counts the tries; workers, durations and deaths are
drawn with a seed. It answers what can't be measured on a small machine: how much the last pieces
cost, what deaths cost, and whether every piece comes back once.
"""

import heapq
from typing import Any

import numpy as np

from bench.report import row
from cutaway.engine.pieces import PendingPiece, PieceOptions, PieceOutcome, PieceQueue

PIECES, WORKERS, SECONDS, HAND = 10_000, 64, 30.0, 0.002


def run(quick: bool) -> dict[str, Any]:
    """Time over the ideal for calm, rough and very uneven pieces."""
    count = 500 if quick else PIECES
    table = []
    for name, spread, deaths in (
        ("equal pieces, nobody dies", 0.0, 0.0),
        ("uneven pieces (longest about 10 times the median), nobody dies", 0.6, 0.0),
        ("uneven pieces, one try in a hundred ends with its worker", 0.6, 0.01),
        ("uneven pieces, one try in five ends with its worker", 0.6, 0.2),
    ):
        found = simulate(count, spread, deaths)
        assert found["back"] == count
        table.append(
            row(name, f"{found['hours']:.2f} h", f"{found['ideal']:.2f} h",
                found["hours"] / found["ideal"])
            | {"tried again": found["again"], "failed": found["failed"]}
        )  # fmt: skip
    return {
        "title": "The scheduler, simulated",
        "text": f"{count:,} pieces of {SECONDS:g} s on {WORKERS} workers; the driver takes "
        f"{HAND * 1000:g} ms for each, one after the other; a worker that died is back after a "
        "minute. The rival is all work divided by all workers. A piece counts as failed after "
        "three tries.",
        "table": table,
    }


def simulate(count: int, spread: float, deaths: float, *, seed: int = 0) -> dict[str, Any]:
    """Hours until the last piece is back, and the hours that the work alone takes."""
    rng = np.random.default_rng(seed)
    lasts = SECONDS * np.exp(spread * rng.standard_normal(count))
    desk, back, failed, again = PieceQueue(range(count), PieceOptions()), 0, 0, 0
    free: list[float] = [0.0] * WORKERS
    under_way: list[tuple[float, int, PendingPiece, bool]] = []
    now, driver, turn = 0.0, 0.0, 0
    while True:
        while free and (task := desk.take()) is not None:
            driver, ready = max(driver, now) + HAND, heapq.heappop(free)
            dies = bool(rng.random() < deaths)
            took = lasts[task.piece] * (rng.random() if dies else 1.0)
            heapq.heappush(under_way, (max(driver, ready) + took, turn, task, dies))
            turn += 1
        if not under_way:
            break
        now, _, task, died = heapq.heappop(under_way)
        heapq.heappush(free, now + 60 if died else now)
        outcome = PieceOutcome(reason="its worker died") if died else PieceOutcome(task.piece)
        settled = list(desk.settle(task, outcome))
        again += not settled
        back += len(settled)
        failed += sum(isinstance(got, Exception) for _, got in settled)
    ideal = float(lasts.sum()) / WORKERS / 3600
    return {"hours": now / 3600, "ideal": ideal, "back": back, "failed": failed, "again": again}
