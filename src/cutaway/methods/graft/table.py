"""The table of a graft run: a line per kind of mask and size, or the overlap of skills."""

from typing import Any

import polars as pl

from cutaway.core.errors import Missing
from cutaway.methods.graft.figures_continual import forgetting_table
from cutaway.report import formats
from cutaway.report.method_table import Grid, MethodTable
from cutaway.report.records import RecordLike

KIND_LABELS = {
    "base": "base",
    "tuned": "tuned",
    "learned": "learned mask",
    "removed": "tuned without the skill",
    "random": "random",
    "movement": "top movement",
    "grad_movement": "top |gradient x movement|",
    "fisher": "top Fisher",
    "uniform": "top movement per tensor",
    "biases": "biases only",
    "ties": "top movement, rescaled (TIES)",
    "dare": "random, rescaled (DARE)",
}
TABLE_METRICS = (
    "accuracy", "f1", "mcc", "pearson", "spearman", "relative_gain", "agreement", "ece", "lm_loss",
    "size",
)  # fmt: skip
DETAIL_COLUMNS = ("layer", "part", "head", "bin", "step")


def whole_model_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows about whole models: without block, bin and step."""
    return rows.filter(pl.all_horizontal(pl.col(name).is_null() for name in DETAIL_COLUMNS))


def need_single_base(rows: pl.DataFrame) -> None:
    """Missing for rows of several pairs of models."""
    bases = rows["base"].drop_nulls().unique().sort().to_list()
    if len(bases) > 1:
        raise Missing(
            f"This figure shows one pair of models, these runs have {len(bases)}: "
            f"{', '.join(map(str, bases))}. Choose one of them, or show the runs side by side."
        )


def seed_means(rows: pl.DataFrame) -> pl.DataFrame:
    """Mean over seeds, with its interval, by base, kind, size, set and metric."""
    keys = ["base", "task", "kind", "sparsity", "data", "metric"]
    return (
        whole_model_rows(rows)
        .group_by(keys, maintain_order=True)
        .agg(
            pl.col("value").mean().alias("mean"),
            pl.col("low").first(),
            pl.col("high").first(),
            pl.len().alias("seeds"),
        )
    )


def graft_results_table(rows: pl.DataFrame) -> pl.DataFrame:
    """A line per kind of mask, size and set, a column per metric; a matrix for overlaps."""
    if (course := forgetting_table(rows)).height:
        return course
    table = seed_means(rows)
    if table["metric"].unique().to_list() == ["overlap"]:
        return overlap_table(table)
    used = [name for name in TABLE_METRICS if name in set(table["metric"])]
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for cell in table.iter_rows(named=True):
        if cell["metric"] not in used:
            continue
        ends = cell["kind"] in ("base", "tuned")
        size = None if ends else cell["sparsity"]
        where = (cell["base"], cell["task"], cell["data"], size, cell["kind"])
        line = lines.setdefault(where, {})
        line[cell["metric"]] = formats.interval(cell["mean"], cell["low"], cell["high"])
    keys = sorted(lines, key=_sort_key)
    full = [_table_line(key, lines[key], used) for key in keys if key[2] or len(lines[key]) > 1]
    return _drop_constant_columns(pl.DataFrame(full, schema=_schema(used), orient="row"))


def overlap_table(table: pl.DataFrame) -> pl.DataFrame:
    """Row i, column j: the share of skill j's weights that skill i has too."""
    found = table.filter(pl.col("kind") == "learned")
    names = found["task"].unique(maintain_order=True).to_list()
    cells = {(c["task"], c["data"]): c["mean"] for c in found.iter_rows(named=True)}
    lines = [{"skill": i} | {j: formats.number(cells.get((i, j))) for j in names} for i in names]
    return pl.DataFrame(lines, schema=dict.fromkeys(["skill", *names], pl.String), orient="row")


def kind_rank(kind: str) -> int:
    """The position of a kind: base and tuned first, then learned masks, then baselines."""
    return [*KIND_LABELS, kind].index(kind)


def _sort_key(key: tuple[Any, ...]) -> tuple[Any, ...]:
    base, task, data, size, kind = key
    return str(base), str(task), str(data), size or 0.0, kind_rank(kind)


def _table_line(key: tuple[Any, ...], found: dict[str, str], used: list[str]) -> dict[str, Any]:
    base, task, data, size, kind = key
    share = formats.DASH if size is None else f"{size:.1e}"
    head = {"base": base, "task": task, "data": data}
    head |= {"mask": KIND_LABELS.get(kind, kind), "sparsity": share}
    return head | {name: found.get(name, formats.DASH) for name in used}


def _schema(used: list[str]) -> dict[str, Any]:
    return dict.fromkeys(["base", "task", "data", "mask", "sparsity", *used], pl.String)


def _drop_constant_columns(table: pl.DataFrame) -> pl.DataFrame:
    """Without the columns that have one value."""
    same = [name for name in ("base", "task", "data") if table[name].n_unique() <= 1]
    return table.drop(same)


def evaluation_grids(rows: pl.DataFrame, record: RecordLike) -> list[Grid]:
    """Of `graft eval`: the score of each skill on each set, without and with the skill."""
    summary = record.summary or {}
    if summary.get("verb") != "eval":
        return []
    matrix, metric = summary["matrix"], summary["metric"]
    grids = []
    for title, before, after in (
        ("base model, without -> with the skill", "base", "learned"),
        ("tuned model, with -> without the skill", "tuned", "removed"),
    ):
        if before in matrix and after in matrix:
            lines = [
                {"skill": skill}
                | {
                    data: " -> ".join(map(formats.number, (matrix[before][skill][data], value)))
                    for data, value in line.items()
                }
                for skill, line in matrix[after].items()
            ]
            sets = dict.fromkeys(name for line in lines for name in line)
            table = pl.DataFrame(lines, schema=dict.fromkeys(sets, pl.String), orient="row")
            grids.append(Grid(f"{metric} of the {title}", table))
    return grids


TABLE = MethodTable(highlights=graft_results_table, grids=evaluation_grids)
