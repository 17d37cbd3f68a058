"""What a pass will cost, told before it starts."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cutaway.console import Console
from cutaway.core.textset import TextSet
from cutaway.extract.request import ExtractionRequest
from cutaway.extract.sweep import run_pass
from cutaway.extract.token_rows import TokenRows, build_token_rows
from cutaway.extract.visitors import STORED_DTYPES, PoolingVisitor
from cutaway.models.batches import TOKEN_BUDGETS, TokenBudget
from cutaway.models.lm import LM
from cutaway.store.activations import open_activations
from cutaway.store.files import check_free_space

# Rows tried to learn the speed: enough for two batches of a middling budget.
SAMPLE_TOKENS = 1024


@dataclass(frozen=True)
class PassEstimate:
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


def estimate_pass(lm: LM, texts: TextSet, ask: ExtractionRequest) -> PassEstimate:
    """The cost of `extract(lm, texts, ask)`, from a short trial on some of the rows."""
    fed = build_token_rows(lm, texts, ask)
    shelf = open_activations(ask.key(lm, texts), len(texts))
    there = shelf.columns()
    missing = {n: c for n, c in ask.columns().items() if n not in there}
    covered = shelf.covered(list(missing)) if missing else np.ones(len(texts), bool)
    todo = np.flatnonzero(~covered[fed.text_index])
    tokens = int(sum(len(fed.rows[i]) for i in todo))
    speed = _speed(lm, ask, fed, todo, missing) if tokens else float("inf")
    return PassEstimate(
        rows=len(texts),
        tokens=tokens,
        shortened=int((fed.truncated > 0).sum()),
        cached_rows=int(covered.sum()),
        seconds=round(tokens / speed, 1),
        disk_mb=round(disk_bytes(lm, ask, int((~covered).sum()), fed, len(missing)) / 2**20, 1),
        memory_mb=round(memory_bytes(lm, fed) / 2**20, 1),
    )


def disk_bytes(lm: LM, ask: ExtractionRequest, rows: int, fed: TokenRows, columns: int) -> int:
    """Bytes the stored columns will take."""
    ragged = {"all": fed.tokens, "marks": rows * ask.positions}
    size = STORED_DTYPES[ask.stored_dtype].itemsize * lm.width
    if not ask.pools or not columns:
        return 0
    per_pool = columns / len(ask.pools)
    return int(sum(per_pool * ragged.get(pool, rows) * size for pool in ask.pools))


def memory_bytes(lm: LM, fed: TokenRows) -> int:
    """Bytes besides the model: one batch on its way, one shard being filled, the tokens."""
    widest = max(fed.lengths, default=1)
    batch = max(TOKEN_BUDGETS[2], widest) * lm.width * 4 * 12
    return batch + (128 << 20) + fed.tokens * 40


def need_disk_space(
    lm: LM, ask: ExtractionRequest, rows: int, fed: TokenRows, columns: int, folder: Path
) -> None:
    """NoRoom when the disk can't hold what is about to be written."""
    check_free_space(folder, disk_bytes(lm, ask, rows, fed, columns))


def _speed(
    lm: LM,
    ask: ExtractionRequest,
    fed: TokenRows,
    todo: np.ndarray,
    missing: Mapping[str, tuple[str, str]],
) -> float:
    """Tokens per second on rows of middling length."""
    order = todo[np.argsort([len(fed.rows[i]) for i in todo], kind="stable")]
    middle, sample, total = len(order) // 2, [], 0
    for row in [*order[middle:], *order[:middle]]:
        sample.append(row)
        total += len(fed.rows[row])
        if total >= SAMPLE_TOKENS:
            break
    pools = PoolingVisitor(
        lm, ask, missing, lambda rows, columns: None, lambda rows, lengths, columns: None
    )
    quiet, rows = Console(quiet=True), np.array(sample)
    small = rows[: max(1, len(rows) // 8)]
    run_pass(
        lm, fed, [pools], console=quiet, todo=small, budget=TokenBudget(fixed=TOKEN_BUDGETS[1])
    )
    return run_pass(
        lm, fed, [pools], console=quiet, todo=rows, budget=TokenBudget(fixed=TOKEN_BUDGETS[1])
    ).speed
