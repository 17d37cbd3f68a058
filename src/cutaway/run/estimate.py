"""What a pass will cost, told before it starts."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cutaway.core.textset import TextSet
from cutaway.models.lm import LM
from cutaway.run.ask import Ask
from cutaway.run.batches import BUDGETS, Budget
from cutaway.run.feed import Fed, feed
from cutaway.run.screen import Screen
from cutaway.run.sweep import sweep
from cutaway.run.visitors import DTYPES, Pools
from cutaway.store.activations import open_shelf
from cutaway.store.files import need_room

# Rows tried to learn the speed: enough for two batches of a middling budget.
SAMPLE_TOKENS = 1024


@dataclass(frozen=True)
class Estimate:
    """Rows, tokens, seconds, bytes: the cost of a pass before it starts."""

    rows: int
    tokens: int
    shortened: int
    cached_rows: int
    seconds: float
    disk_mb: float
    memory_mb: float

    def sentence(self) -> str:
        """The estimate for people."""
        said = (
            f"{self.rows:,} texts, {self.tokens:,} tokens to read, about {self.seconds:,.0f} s; "
            f"{self.disk_mb:,.0f} MB on disk, about {self.memory_mb:,.0f} MB of memory besides "
            "the model"
        )
        said += f"; {self.cached_rows:,} texts are in the cache already" if self.cached_rows else ""
        return said + (f"; {self.shortened:,} texts are cut" if self.shortened else "") + "."

    def plain(self) -> dict[str, Any]:
        """The estimate as JSON-ready values."""
        return asdict(self)


def estimate(lm: LM, texts: TextSet, ask: Ask) -> Estimate:
    """The cost of `extract(lm, texts, ask)`, from a short trial on some of the rows."""
    fed = feed(lm, texts, ask)
    shelf = open_shelf(ask.key(lm, texts), len(texts))
    there = shelf.columns()
    missing = {n: c for n, c in ask.columns().items() if n not in there}
    covered = shelf.covered(list(missing)) if missing else np.ones(len(texts), bool)
    todo = np.flatnonzero(~covered[fed.owner])
    tokens = int(sum(len(fed.rows[i]) for i in todo))
    speed = _speed(lm, ask, fed, todo, missing) if tokens else float("inf")
    return Estimate(
        rows=len(texts),
        tokens=tokens,
        shortened=int((fed.cut > 0).sum()),
        cached_rows=int(covered.sum()),
        seconds=round(tokens / speed, 1),
        disk_mb=round(disk_bytes(lm, ask, int((~covered).sum()), fed, len(missing)) / 2**20, 1),
        memory_mb=round(memory_bytes(lm, fed) / 2**20, 1),
    )


def disk_bytes(lm: LM, ask: Ask, rows: int, fed: Fed, columns: int) -> int:
    """Bytes the stored columns will take."""
    ragged = {"all": fed.tokens, "marks": rows * ask.positions}
    size = DTYPES[ask.keep].itemsize * lm.width
    if not ask.pools or not columns:
        return 0
    per_pool = columns / len(ask.pools)
    return int(sum(per_pool * ragged.get(pool, rows) * size for pool in ask.pools))


def memory_bytes(lm: LM, fed: Fed) -> int:
    """Bytes besides the model: one batch on its way, one shard being filled, the tokens."""
    widest = max(fed.lengths, default=1)
    batch = max(BUDGETS[2], widest) * lm.width * 4 * 12
    return batch + (128 << 20) + fed.tokens * 40


def refuse_when_full(lm: LM, ask: Ask, rows: int, fed: Fed, columns: int, folder: Path) -> None:
    """NoRoom when the disk can't hold what is about to be written."""
    need_room(folder, disk_bytes(lm, ask, rows, fed, columns))


def _speed(
    lm: LM, ask: Ask, fed: Fed, todo: np.ndarray, missing: Mapping[str, tuple[str, str]]
) -> float:
    """Tokens per second on rows of middling length."""
    order = todo[np.argsort([len(fed.rows[i]) for i in todo], kind="stable")]
    middle, sample, total = len(order) // 2, [], 0
    for row in [*order[middle:], *order[:middle]]:
        sample.append(row)
        total += len(fed.rows[row])
        if total >= SAMPLE_TOKENS:
            break
    pools = Pools(lm, ask, missing, lambda rows, columns: None, lambda rows, lengths, columns: None)
    quiet, rows = Screen(quiet=True), np.array(sample)
    small = rows[: max(1, len(rows) // 8)]
    sweep(lm, fed, [pools], screen=quiet, todo=small, budget=Budget(fixed=BUDGETS[1]))
    return sweep(lm, fed, [pools], screen=quiet, todo=rows, budget=Budget(fixed=BUDGETS[1])).speed
