"""Which blocks to run and which to skip, found by dynamic programming."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from cutaway.core.errors import BadSpec


@dataclass(frozen=True)
class SkipSchedule:
    """A path from layer 0 to the last: (i, i + 1, "run") for a block, (i, j, "jump") for a map."""

    steps: tuple[tuple[int, int, str], ...]
    loss: float
    """Sum of the losses of its jumps."""

    @property
    def blocks(self) -> int:
        """How many blocks are run."""
        return sum(kind == "run" for *_, kind in self.steps)

    @property
    def jumps(self) -> int:
        """How many maps are applied."""
        return len(self.steps) - self.blocks


def best_schedules(losses: Mapping[tuple[int, int], float], layers: int) -> list[SkipSchedule]:
    """The best schedule for every number of blocks run, from 0 to `layers`.

    `losses` is the loss in quality of each jump (1 - r2, or KL); running a block loses nothing.
    Losses are summed along the path, an approximation that the evaluation then checks.
    """
    if layers < 1:
        raise BadSpec(f"A schedule needs at least 1 block, got {layers!r}.")
    best: list[list[SkipSchedule | None]] = [[None] * (layers + 1) for _ in range(layers + 1)]
    best[0][0] = SkipSchedule((), 0.0)
    for target in range(1, layers + 1):
        for blocks in range(target + 1):
            options = _schedules_into(best, losses, target, blocks)
            best[target][blocks] = min(options, key=lambda option: option.loss, default=None)
    return [schedule for schedule in best[layers] if schedule is not None]


def _schedules_into(
    best: list[list[SkipSchedule | None]],
    losses: Mapping[tuple[int, int], float],
    target: int,
    blocks: int,
) -> list[SkipSchedule]:
    """Every schedule to `target` with this many blocks: by running its block, or by a jump."""
    options = []
    before = best[target - 1][blocks - 1] if blocks else None
    if before is not None:
        options.append(SkipSchedule((*before.steps, (target - 1, target, "run")), before.loss))
    for source in range(target):
        start, loss = best[source][blocks], losses.get((source, target), inf)
        if start is not None and loss < inf:
            options.append(
                SkipSchedule((*start.steps, (source, target, "jump")), start.loss + loss)
            )
    return options


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
