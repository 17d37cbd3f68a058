"""Graft runs for reading: a line per kind of mask and size, or the overlap of skills."""

from typing import Any

import polars as pl

from cutaway.core.errors import Missing
from cutaway.report import formats
from cutaway.report.graft_continual import forgetting_table

ORDER = (
    "base", "tuned", "learned", "removed", "random", "movement", "grad_movement", "fisher",
    "uniform", "biases", "ties", "dare",
)  # fmt: skip
WORDS = {
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
    "ties": "top movement, stretched (TIES)",
    "dare": "random, stretched (DARE)",
}
SHOWN = ("accuracy", "f1", "mcc", "pearson", "spearman", "relative_gain", "agreement", "ece",
         "lm_loss", "size")  # fmt: skip
WHERE = ("layer", "part", "head", "bin", "step")


def plain(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows about whole models: no block, no bin, no step."""
    return rows.filter(pl.all_horizontal(pl.col(name).is_null() for name in WHERE))


def need_one_base(rows: pl.DataFrame) -> None:
    """Missing for rows of several pairs of models: one figure can't tell their masks apart."""
    bases = rows["base"].drop_nulls().unique().sort().to_list()
    if len(bases) > 1:
        raise Missing(
            f"This figure shows one pair of models, these runs have {len(bases)}: "
            f"{', '.join(map(str, bases))}. Look at one of them, or at several side by side."
        )


def means(rows: pl.DataFrame) -> pl.DataFrame:
    """Mean over seeds and the interval of every base, kind, size, set and metric."""
    keys = ["base", "task", "kind", "sparsity", "data", "metric"]
    return (
        plain(rows)
        .group_by(keys, maintain_order=True)
        .agg(
            pl.col("value").mean().alias("mean"),
            pl.col("low").first(),
            pl.col("high").first(),
            pl.len().alias("seeds"),
        )
    )


def kinds_table(rows: pl.DataFrame) -> pl.DataFrame:
    """A line per kind of mask, size and set, a column per metric; a matrix for overlaps."""
    if (course := forgetting_table(rows)).height:
        return course
    table = means(rows)
    if table["metric"].unique().to_list() == ["overlap"]:
        return overlap_table(table)
    used = [name for name in SHOWN if name in set(table["metric"])]
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for cell in table.iter_rows(named=True):
        if cell["metric"] not in used:
            continue
        ends = cell["kind"] in ("base", "tuned")
        size = None if ends else cell["sparsity"]
        where = (cell["base"], cell["task"], cell["data"], size, cell["kind"])
        line = lines.setdefault(where, {})
        line[cell["metric"]] = formats.interval(cell["mean"], cell["low"], cell["high"])
    keys = sorted(lines, key=_place)
    full = [_line(key, lines[key], used) for key in keys if key[2] or len(lines[key]) > 1]
    return _narrow(pl.DataFrame(full, schema=_schema(used), orient="row"))


def overlap_table(table: pl.DataFrame) -> pl.DataFrame:
    """Line i, column j: the share of skill j's weights that skill i has too."""
    found = table.filter(pl.col("kind") == "learned")
    names = found["task"].unique(maintain_order=True).to_list()
    cells = {(c["task"], c["data"]): c["mean"] for c in found.iter_rows(named=True)}
    lines = [{"skill": i} | {j: formats.number(cells.get((i, j))) for j in names} for i in names]
    return pl.DataFrame(lines, schema=dict.fromkeys(["skill", *names], pl.String), orient="row")


def rank(kind: str) -> int:
    """Where a kind stands: ends first, then the learned mask, then the others."""
    return ORDER.index(kind) if kind in ORDER else len(ORDER)


def _place(key: tuple[Any, ...]) -> tuple[Any, ...]:
    base, task, data, size, kind = key
    return str(base), str(task), str(data), size or 0.0, rank(kind)


def _line(key: tuple[Any, ...], found: dict[str, str], used: list[str]) -> dict[str, Any]:
    base, task, data, size, kind = key
    share = formats.DASH if size is None else f"{size:.1e}"
    head = {"base": base, "task": task, "data": data}
    head |= {"mask": WORDS.get(kind, kind), "sparsity": share}
    return head | {name: found.get(name, formats.DASH) for name in used}


def _schema(used: list[str]) -> dict[str, Any]:
    return dict.fromkeys(["base", "task", "data", "mask", "sparsity", *used], pl.String)


def _narrow(table: pl.DataFrame) -> pl.DataFrame:
    """Without the columns that say the same in every line."""
    same = [name for name in ("base", "task", "data") if table[name].n_unique() <= 1]
    return table.drop(same)
