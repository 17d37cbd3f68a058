"""The table of the paper: a line per model, task and prompt, a column per feature kind.

A star behind a task says that its prompt was appended, as in the paper's Table 1; [MASK] that a
masked model was asked in the task's template.
"""

import re
from collections.abc import Sequence
from typing import Any

import polars as pl

from cutaway.report import formats
from cutaway.report.method_table import MethodTable
from cutaway.report.records import RecordLike

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
"""Measured once per task, whatever the prompt."""


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
    three columns each (mean, low, high). Runs of finetune among those `beside` fill the last column."""
    table = pl.concat(
        [cell_means(rows), *(finetuned_cells(r.rows) for r in beside if r.method == "finetune")],
        how="diagonal_relaxed",
    )
    flat = {
        (c["model"], c["task"], c["features"]): c
        for c in table.filter(pl.col("features").is_in(PROMPT_FREE)).iter_rows(named=True)
    }
    own = table.filter(~pl.col("features").is_in(PROMPT_FREE))
    used = [k for k in FEATURE_LABELS if k in set(table["features"])]
    lines = []
    for key, group in own.group_by(["model", "task", "prompt"], maintain_order=True):
        model, task, prompt = key
        found = {c["features"]: c for c in group.iter_rows(named=True)}
        # Runs told apart by their address in the model's name were fine-tuned under the bare one.
        bare = re.sub(r" \[[0-9a-f]{4}\]$", "", str(model))
        for owner in (bare, model):
            found |= {k: flat[owner, task, k] for k in PROMPT_FREE if (owner, task, k) in flat}
        line: dict[str, Any] = {
            "model": model,
            "task": f"{task}{_PROMPT_MARKS[_prompt_kind(str(prompt))]}",
        }
        lines.append(line | _score_columns(found, used, numbers))
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


def feature_table(rows: pl.DataFrame) -> pl.DataFrame:
    """The accuracies for reading: a line per feature kind, a column without prompt and with."""
    table = cell_means(rows).filter(pl.col("features").is_in(list(FEATURE_LABELS)))
    where = [c for c in ("model", "task") if table[c].n_unique() > 1]
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for cell in table.iter_rows(named=True):
        key = tuple(cell[c] for c in (*where, "features"))
        line = lines.setdefault(key, {**{c: cell[c] for c in where}})
        line["features"] = FEATURE_LABELS[cell["features"]]
        flat = cell["features"] in PROMPT_FREE
        line["words alone" if flat else _prompt_kind(cell["prompt"])] = _format_cell(cell)
    names = dict.fromkeys((*where, "features", "no prompt", "with prompt", "template"))
    names |= {"words alone": None}
    used = [n for n in names if any(n in line for line in lines.values())]
    full = [{n: line.get(n) for n in used} for line in lines.values()]
    return pl.DataFrame(full, schema=dict.fromkeys(used, pl.String), orient="row")


_PROMPT_MARKS = {"no prompt": "", "with prompt": "*", "template": " [MASK]"}


def _prompt_kind(prompt: str) -> str:
    if "{text}" in prompt:
        return "template"
    return "with prompt" if prompt else "no prompt"


def _score_columns(found: dict[str, Any], used: Sequence[str], numbers: bool) -> dict[str, Any]:
    if not numbers:
        return {FEATURE_LABELS[k]: _format_cell(found.get(k)) for k in used}
    ends = (("", "mean"), (" low", "low"), (" high", "high"))
    return {
        f"{FEATURE_LABELS[k]}{end}": found[k][name] if k in found else None
        for k in used
        for end, name in ends
    }


def _score_schema(used: Sequence[str], numbers: bool) -> dict[str, Any]:
    if not numbers:
        return {FEATURE_LABELS[k]: pl.String for k in used}
    return {f"{FEATURE_LABELS[k]}{end}": pl.Float64 for k in used for end in ("", " low", " high")}


def _format_cell(cell: dict[str, Any] | None) -> str:
    return (
        formats.DASH if cell is None else formats.interval(cell["mean"], cell["low"], cell["high"])
    )


TABLE = MethodTable(highlights=feature_table, paper=paper_table)
