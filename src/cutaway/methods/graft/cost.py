"""The cost of `graft learn` and `graft eval`, extrapolated from a few rows; nothing is changed."""

import time
from collections.abc import Sequence

from cutaway.methods.graft.mask_search import MaskSearch
from cutaway.methods.graft.maths.select import mask_size
from cutaway.methods.graft.maths.soft_mask import gradients_enabled
from cutaway.methods.graft.task_evaluator import TokenRows, mean_lm_loss
from cutaway.models.lm import LM
from cutaway.recipe.cost import Estimate
from cutaway.training.prompting import EVAL_BATCH_TOKENS, PromptedExamples, predict_proba

TRIAL_ROWS, TRIAL_TEXTS = 16, 4
SKILL_BYTES = 12
"""Bytes of one weight in a skill file: its index, and its values before and after."""


def estimate_mask_learning(
    search: MaskSearch, seeds: Sequence[int], random_kinds: frozenset[str]
) -> Estimate:
    """The cost of a run, from the gradient of one batch and the predictions on a few rows."""
    spec, pair = search.spec, search.pair
    sizes = tuple(mask_size(share, pair.total) for share in spec.sparsity)
    baselines = sum(len(seeds) if kind in random_kinds else 1 for kind in spec.baselines)
    learned, masks = len(sizes) * len(seeds), len(sizes) * (len(seeds) + baselines)
    evaluator = search.evaluator
    scored = learned * (1 + spec.steps // spec.every) * len(evaluator.validation)
    tested = (3 + masks) * len(evaluator.test)
    steps = learned * spec.steps + spec.slope_examples / spec.step_examples
    seconds = steps * _step_seconds(search, seeds[0]) + (scored + tested) * _row_seconds(search)
    weights_mb = sum(value.nbytes for value in pair.base.values()) / 2**20
    return Estimate(
        f"{pair.total:,} weights to choose from; masks of {', '.join(f'{n:,}' for n in sizes)}, "
        f"{masks} to measure",
        seconds=round(seconds, 1),
        memory_mb=round(spec.mask_copies * weights_mb, 1),
        disk_mb=round(SKILL_BYTES * len(seeds) * sum(sizes) / 2**20, 1),
        counts={"weights": pair.total, "sizes": sizes, "masks": masks},
    )


def estimate_evaluation(
    lm: LM, trial: PromptedExamples, rows: int, texts: TokenRows, models: int
) -> Estimate:
    """The cost of an evaluation: `models` models read all rows and texts; a few are timed."""
    few = trial.take(range(min(TRIAL_ROWS, len(trial))))
    begin = time.perf_counter()
    predict_proba(lm, few)
    row_seconds = (time.perf_counter() - begin) / len(few)
    begin = time.perf_counter()
    mean_lm_loss(lm, texts[:TRIAL_TEXTS], 0)
    text_seconds = (time.perf_counter() - begin) / max(len(texts[:TRIAL_TEXTS]), 1)
    seconds = models * (rows * row_seconds + len(texts) * text_seconds)
    widest = max(map(len, [*few.rows, *texts[:TRIAL_TEXTS]]))
    floats = max(EVAL_BATCH_TOKENS, widest) * (4 * lm.width + lm.vocab)
    return Estimate(
        f"{rows:,} prompts and {len(texts):,} held-out texts, read by {models:,} models",
        seconds=round(seconds, 3),
        memory_mb=round(4 * floats / 2**20, 1),
        counts={"rows": rows, "texts": len(texts), "models": models},
    )


def _step_seconds(search: MaskSearch, seed: int) -> float:
    losses = search.losses(seed)(1)
    with gradients_enabled(search.pair.params, search.pair.base):
        begin = time.perf_counter()
        losses[0]().backward()  # type: ignore[no-untyped-call]
        return (time.perf_counter() - begin) * len(losses)


def _row_seconds(search: MaskSearch) -> float:
    rows = search.evaluator.test[:32]
    begin = time.perf_counter()
    search.pair.model.predict_proba(rows)
    return (time.perf_counter() - begin) / len(rows)
