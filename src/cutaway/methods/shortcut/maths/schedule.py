"""Which blocks to run and which to jump over, found by dynamic programming."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from cutaway.core.errors import BadSpec


@dataclass(frozen=True)
class SkipSchedule:
    """A way from layer 0 to the last: steps (i, i+1, run) and jumps (i, j, over a shortcut)."""

    steps: tuple[tuple[int, int, str], ...]
    loss: float
    """Sum of the losses of its jumps."""

    @property
    def blocks(self) -> int:
        """How many blocks are run."""
        return sum(kind == "run" for *_, kind in self.steps)

    @property
    def jumps(self) -> int:
        """How many shortcuts are taken."""
        return len(self.steps) - self.blocks


def best_schedules(losses: Mapping[tuple[int, int], float], layers: int) -> list[SkipSchedule]:
    """The best schedule for every number of blocks run, from 0 to `layers`.

    `losses` says what each jump costs in quality (1 - r2, or KL); running a block loses nothing.
    Losses are added up along the way, an approximation that the evaluation then checks.
    """
    if layers < 1:
        raise BadSpec(f"A schedule needs at least 1 block, got {layers!r}.")
    best: list[list[SkipSchedule | None]] = [[None] * (layers + 1) for _ in range(layers + 1)]
    best[0][0] = SkipSchedule((), 0.0)
    for target in range(1, layers + 1):
        for blocks in range(target + 1):
            ways = _schedules_into(best, losses, target, blocks)
            best[target][blocks] = min(ways, key=lambda way: way.loss, default=None)
    return [found for found in best[layers] if found is not None]


def _schedules_into(
    best: list[list[SkipSchedule | None]],
    losses: Mapping[tuple[int, int], float],
    target: int,
    blocks: int,
) -> list[SkipSchedule]:
    """Every way into `target` with so many blocks run: by its own block, or by a jump."""
    ways = []
    before = best[target - 1][blocks - 1] if blocks else None
    if before is not None:
        ways.append(SkipSchedule((*before.steps, (target - 1, target, "run")), before.loss))
    for source in range(target):
        start, loss = best[source][blocks], losses.get((source, target), inf)
        if start is not None and loss < inf:
            ways.append(SkipSchedule((*start.steps, (source, target, "jump")), start.loss + loss))
    return ways


def alternating_schedule(layers: int, run: int, jump: int) -> SkipSchedule:
    """The paper's fixed pattern: run some blocks, jump over some, and so on to the end."""
    if run < 1 or jump < 1:
        raise BadSpec(f"An alternation runs and jumps at least 1 block, got {run!r} and {jump!r}.")
    steps: list[tuple[int, int, str]] = []
    at = 0
    while at < layers:
        for _ in range(min(run, layers - at)):
            steps.append((at, at + 1, "run"))
            at += 1
        if at < layers:
            steps.append((at, min(at + jump, layers), "jump"))
            at = min(at + jump, layers)
    return SkipSchedule(tuple(steps), 0.0)
