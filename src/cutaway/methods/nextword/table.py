"""Tables of nextword: one line per model, task and prompt as in the paper, or per feature kind.

A star after a task means that its prompt was appended, as in the paper's Table 1; [MASK] that the
task's template was used with a masked model.
"""

import re
from collections.abc import Sequence
from typing import Any

import polars as pl

from cutaway.report import formats
from cutaway.report.method_table import MethodTable
from cutaway.report.records import RecordLike, RunOrRuns

FEATURE_LABELS = {
    "f": "f",
    "phi_p": "Phi p",
    "subset": "subset",
    "classwords": "class words",
    "posneg": "pos/neg",
    "projection": "projection",
    "p": "p",
    "zeroshot": "zero-shot",
    "zeroshot_calibrated": "calibrated",
    "finetuned": "fine-tuned",
    "majority": "majority",
    "bow": "bag of words",
    "tfidf": "TF-IDF",
}
PROMPT_FREE = ("majority", "bow", "tfidf", "finetuned")
"""Measured once per task: the prompt has no effect."""


def cell_means(rows: pl.DataFrame, metric: str = "accuracy") -> pl.DataFrame:
    """Mean and interval of one metric for every model, task, prompt and feature kind."""
    done = rows.filter((pl.col("metric") == metric) & (pl.col("status") == "done"))
    return done.group_by(["model", "task", "prompt", "features"], maintain_order=True).agg(
        pl.col("value").mean().alias("mean"), pl.col("low").first(), pl.col("high").first()
    )


def paper_table(
    rows: pl.DataFrame, *, numbers: bool = False, beside: Sequence[RecordLike] = ()
) -> pl.DataFrame:
    """The accuracies in the paper's layout: as `0.871 [0.855, 0.886]`, or with `numbers` as
    three columns each (mean, low, high). Runs of finetune in `beside` give the last column."""
    table = pl.concat(
        [cell_means(rows), *(finetuned_cells(r.rows) for r in beside if r.method == "finetune")],
        how="diagonal_relaxed",
    )
    prompt_free = {
        (c["model"], c["task"], c["features"]): c
        for c in table.filter(pl.col("features").is_in(PROMPT_FREE)).iter_rows(named=True)
    }
    own = table.filter(~pl.col("features").is_in(PROMPT_FREE))
    used = [k for k in FEATURE_LABELS if k in set(table["features"])]
    lines = []
    for key, group in own.group_by(["model", "task", "prompt"], maintain_order=True):
        model, task, prompt = key
        cells = {c["features"]: c for c in group.iter_rows(named=True)}
        # A model's name may have a run's address appended, which its fine-tuned runs don't have.
        bare = re.sub(r" \[[0-9a-f]{4}\]$", "", str(model))
        for owner in (bare, model):
            cells |= {
                k: prompt_free[owner, task, k]
                for k in PROMPT_FREE
                if (owner, task, k) in prompt_free
            }
        mark = _PROMPT_MARKS[_prompt_kind(str(prompt))]
        scores = _score_columns(cells, used, numbers)
        lines.append({"model": model, "task": f"{task}{mark}", **scores})
    schema = {"model": pl.String, "task": pl.String, **_score_schema(used, numbers)}
    return pl.DataFrame(lines, schema=schema, orient="row")


def finetuned_cells(rows: pl.DataFrame) -> pl.DataFrame:
    """The test accuracy of a fine-tuned model as a cell of the same table."""
    if not {"base", "task", "kind", "part"} <= set(rows.columns):
        return pl.DataFrame()
    right = (pl.col("kind") == "tuned") & (pl.col("part") == "test")
    return rows.filter(right & (pl.col("metric") == "accuracy")).select(
        pl.col("base").alias("model"), "task", pl.lit("").alias("prompt"),
        pl.lit("finetuned").alias("features"), pl.col("value").alias("mean"), "low", "high",
    )  # fmt: skip


def shown_metric(rows: pl.DataFrame, record: RunOrRuns) -> str:
    """The metric that tables and figures show: the run's main one, else accuracy."""
    chosen = str((record.summary or {}).get("metric"))
    return chosen if chosen in set(rows["metric"]) else "accuracy"


def feature_table(rows: pl.DataFrame, record: RunOrRuns, most: int = 12) -> pl.DataFrame:
    """The main metric with a line per feature kind, and columns without and with the prompt."""
    table = cell_means(rows, shown_metric(rows, record)).filter(
        pl.col("features").is_in(list(FEATURE_LABELS))
    )
    coordinates = [c for c in ("model", "task") if table[c].n_unique() > 1]
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for cell in table.iter_rows(named=True):
        key = tuple(cell[c] for c in (*coordinates, "features"))
        line = lines.setdefault(key, {c: cell[c] for c in coordinates})
        line["features"] = FEATURE_LABELS[cell["features"]]
        prompt_free = cell["features"] in PROMPT_FREE
        column = "baseline" if prompt_free else _prompt_kind(cell["prompt"])
        line[column] = _format_cell(cell)
    names = dict.fromkeys(
        (*coordinates, "features", "no prompt", "with prompt", "template", "baseline")
    )
    used = [n for n in names if any(n in line for line in lines.values())]
    full = [{n: line.get(n) for n in used} for line in lines.values()]
    return pl.DataFrame(full, schema=dict.fromkeys(used, pl.String), orient="row")


_PROMPT_MARKS = {"no prompt": "", "with prompt": "*", "template": " [MASK]"}


def _prompt_kind(prompt: str) -> str:
    if "{text}" in prompt:
        return "template"
    return "with prompt" if prompt else "no prompt"


def _score_columns(cells: dict[str, Any], used: Sequence[str], numbers: bool) -> dict[str, Any]:
    if not numbers:
        return {FEATURE_LABELS[k]: _format_cell(cells.get(k)) for k in used}
    ends = (("", "mean"), (" low", "low"), (" high", "high"))
    return {
        f"{FEATURE_LABELS[k]}{end}": cells[k][name] if k in cells else None
        for k in used
        for end, name in ends
    }


def _score_schema(used: Sequence[str], numbers: bool) -> dict[str, Any]:
    if not numbers:
        return {FEATURE_LABELS[k]: pl.String for k in used}
    return {f"{FEATURE_LABELS[k]}{end}": pl.Float64 for k in used for end in ("", " low", " high")}


def _format_cell(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return formats.DASH
    return formats.interval(cell["mean"], cell["low"], cell["high"])


TABLE = MethodTable(ranking=feature_table, paper=paper_table)
