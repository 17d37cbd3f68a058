"""The cost of a forward pass over texts, estimated from a short trial."""

from collections.abc import Mapping

import numpy as np

from cutaway.console import Console
from cutaway.core.textset import TextSet
from cutaway.extract.forward_pass import STORED_DTYPES, PoolingVisitor, run_pass
from cutaway.extract.request import ExtractionRequest, TokenRows, build_token_rows
from cutaway.models.batches import TOKEN_BUDGETS, TokenBudget
from cutaway.models.lm import LM
from cutaway.recipe.cost import Estimate
from cutaway.store.activations import open_activations

# Rows tried to measure the speed: enough for two batches of a medium budget.
SAMPLE_TOKENS = 1024


def estimate_pass(lm: LM, texts: TextSet, request: ExtractionRequest) -> Estimate:
    """The cost of `extract(lm, texts, request)`, from a short trial on some of the rows."""
    token_rows = build_token_rows(lm, texts, request)
    table = open_activations(request.key(lm, texts), len(texts))
    missing = request.missing_columns(table)
    covered = table.covered(list(missing)) if missing else np.ones(len(texts), bool)
    todo = np.flatnonzero(~covered[token_rows.text_index])
    tokens = int(sum(len(token_rows.rows[i]) for i in todo))
    speed = _tokens_per_second(lm, request, token_rows, todo, missing) if tokens else float("inf")
    disk = disk_bytes(lm, request, int((~covered).sum()), token_rows, len(missing))
    return reading_estimate(
        rows=len(texts),
        tokens=tokens,
        truncated=int((token_rows.truncated > 0).sum()),
        cached_rows=int(covered.sum()),
        seconds=tokens / speed,
        disk_mb=disk / 2**20,
        memory_mb=memory_bytes(lm, token_rows) / 2**20,
    )


def reading_estimate(
    *, rows: int, tokens: int, truncated: int, seconds: float, disk_mb: float, memory_mb: float,
    cached_rows: int = 0,
) -> Estimate:  # fmt: skip
    """The estimate of a verb that reads texts."""
    notes = [f"{cached_rows:,} texts are already in the cache"] if cached_rows else []
    notes += [f"{truncated:,} texts are truncated"] if truncated else []
    return Estimate(
        work=f"{rows:,} texts, {tokens:,} tokens to read",
        seconds=round(seconds, 1),
        memory_mb=round(memory_mb, 1),
        disk_mb=round(disk_mb, 1),
        counts={"rows": rows, "tokens": tokens, "shortened": truncated, "cached_rows": cached_rows},
        notes=tuple(notes),
    )


def disk_bytes(
    lm: LM, request: ExtractionRequest, rows: int, token_rows: TokenRows, columns: int
) -> int:
    """Bytes that the stored columns will take."""
    if not request.pools or not columns:
        return 0
    vectors = {"all": token_rows.tokens, "marks": rows * request.positions}
    size = STORED_DTYPES[request.stored_dtype].itemsize * lm.width
    per_pool = columns / len(request.pools)
    return int(sum(per_pool * vectors.get(pool, rows) * size for pool in request.pools))


def memory_bytes(lm: LM, token_rows: TokenRows) -> int:
    """Bytes in addition to the model: one batch, one shard being filled, the token ids."""
    longest = max(token_rows.lengths, default=1)
    batch = max(TOKEN_BUDGETS[2], longest) * lm.width * 4 * 12
    return batch + (128 << 20) + token_rows.tokens * 40


def _tokens_per_second(
    lm: LM,
    request: ExtractionRequest,
    token_rows: TokenRows,
    todo: np.ndarray,
    missing: Mapping[str, tuple[str, str]],
) -> float:
    """The speed on rows of medium length, after a warm-up on an eighth of them."""
    order = todo[np.argsort([len(token_rows.rows[i]) for i in todo], kind="stable")]
    middle, sample, total = len(order) // 2, [], 0
    for row in [*order[middle:], *order[:middle]]:
        sample.append(row)
        total += len(token_rows.rows[row])
        if total >= SAMPLE_TOKENS:
            break
    pooling = PoolingVisitor(lm, request, missing, lambda *_: None, lambda *_: None)
    console, budget = Console(quiet=True), TokenBudget(fixed=TOKEN_BUDGETS[1])
    rows = np.array(sample)
    for some in (rows[: max(1, len(rows) // 8)], rows):
        stats = run_pass(lm, token_rows, [pooling], console=console, todo=some, budget=budget)
    return stats.speed
