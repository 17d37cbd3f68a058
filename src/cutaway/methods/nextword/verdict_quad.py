"""The findings of `quad` in words: losses and scores before and after a training."""

import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from cutaway.methods.nextword.verdict import prompt_phrase


def feature_scores(rows: pl.DataFrame) -> dict[str, float]:
    """Accuracies by feature kind and prompt, and the R2 of Phi p from f, by a readable name."""
    chosen = rows.filter(
        ((pl.col("metric") == "accuracy") & pl.col("features").is_in(["f", "phi_p"]))
        | (pl.col("metric") == "r2_from_f")
    ).drop_nulls("value")
    means = chosen.group_by(["features", "prompt", "metric"], maintain_order=True).agg(
        pl.col("value").mean()
    )
    return {
        ("R2 of Phi p from f" if metric == "r2_from_f" else f"accuracy of {kind}")
        + prompt_phrase(prompt): value
        for kind, prompt, metric, value in means.rows()
    }


def quad_verdict(
    objective: str,
    first: Mapping[str, Any],
    best: Mapping[str, Any],
    before: Mapping[str, float],
    after: Mapping[str, float],
    checkpoint: str,
) -> list[str]:
    """The losses at the start and at the best step of a training, and the scores around it."""
    name = {"quad": "Quad loss", "ce": "Cross-entropy"}[objective]
    metric = f"held_{objective}"
    return [
        f"{name} per held-out token: {first[metric]:.4g} -> {best[metric]:.4g} after "
        f"{best['step']} steps; perplexity {_perplexity(first)} -> {_perplexity(best)}.",
        *(
            f"{score}: {before[score]:.3f} before training, {after[score]:.3f} after."
            for score in after
            if score in before
        ),
        f"Checkpoint: {checkpoint}. Measure it with: cutaway nextword --model {checkpoint}",
    ]


def _perplexity(point: Mapping[str, Any]) -> str:
    return f"{math.exp(min(point['held_ce'], 700)):.4g}"
