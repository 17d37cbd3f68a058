"""The grids of shortcut runs: layer by kind of map, or lambda by confidence."""

from typing import Any

import polars as pl

from cutaway.report.method_table import Grid, MethodTable, pivot_grid
from cutaway.report.records import RecordLike

# The lambdas of the paper; a run has more of them near 1, for its figure.
SHOWN_LAMBDAS = (-1.112, *(round(0.1 * step, 1) for step in range(11)), 1.112)
LAYER_TITLES = {
    "precision@1": "precision@1: how often a layer's prediction is the full model's",
    "kl": "KL divergence from the full model's distribution, in nats",
}


def shortcut_grids(rows: pl.DataFrame, record: RecordLike) -> list[Grid]:
    """The grids of what the run measured."""
    curves = rows.filter(pl.col("lambda").is_not_null())
    if curves.height:
        return exit_grids(curves, (record.summary or {}).get("calibrated", []))
    by_layer = rows.filter(pl.col("confidence").is_null())
    return layer_grids(by_layer) or r2_grid(by_layer)


def layer_grids(rows: pl.DataFrame) -> list[Grid]:
    """Layer by kind of map; replaced parts and schedules apart, since their layers differ."""
    kind, grids = pl.col("kind"), list[Grid]()
    part = kind.str.starts_with("part:")
    schedule = kind.str.contains(":") & ~part
    for metric, title in LAYER_TITLES.items():
        maps = rows.filter((pl.col("metric") == metric) & ~part & ~schedule)
        grids += pivot_grid(title, maps, down="layer", across="kind")
    exact = rows.filter(pl.col("metric") == "precision@1")
    replaced = exact.filter(part).with_columns(kind.str.strip_prefix("part:"))
    title = "precision@1 with norms, attention or MLP replaced after a layer"
    grids += pivot_grid(title, replaced, down="layer", across="kind")
    skipped = exact.filter(schedule).select("kind", pl.col("layer").alias("blocks"), "value")
    if skipped.height:
        named = skipped.rename({"kind": "schedule", "value": "precision@1"})
        grids.append(Grid("schedules that run some of the blocks", named))
    return grids


def r2_grid(rows: pl.DataFrame) -> list[Grid]:
    """r2 of the maps to the last layer, by layer and kind."""
    table = rows.filter(pl.col("metric") == "r2")
    last = table.filter(pl.col("target") == pl.col("target").max())
    if last.is_empty():
        return []
    title = f"r2 of the maps to layer {last['target'][0]}"
    return pivot_grid(title, last, down="source", across="kind")


def exit_grids(curves: pl.DataFrame, calibrated: list[dict[str, Any]]) -> list[Grid]:
    """A grid per kind: mean layers and agreement of each confidence, by lambda."""
    names, grids = {"layers": "layers", "precision@1": "agreement"}, []
    for (kind,), rows in curves.group_by(["kind"], maintain_order=True):
        chosen = [one for one in calibrated if one["kind"] == kind]
        lambdas = [*SHOWN_LAMBDAS, *(one["setting"] for one in chosen)]
        column = pl.col("confidence") + " " + pl.col("metric").replace(names)
        shown = rows.filter(pl.col("lambda").is_in(lambdas))
        cells = shown.select("lambda", "value", column=column)
        points = [
            {"lambda": one["setting"], "value": one[name], "column": f"{one['confidence']} {name}"}
            for one in chosen
            for name in names.values()
        ]
        both = pl.concat([cells, pl.DataFrame(points, schema=cells.schema)])
        [grid] = pivot_grid(f"exits with {kind}", both, down="lambda", across="column")
        lines = grid.table
        marks: dict[float, str] = {}
        for one in chosen:
            marks[one["setting"]] = f"{marks.get(one['setting'], '<-')} {one['confidence']}"
        mark = pl.col("lambda").replace_strict(marks, default="", return_dtype=pl.String)
        lines = lines.with_columns(mark.alias("calibrated")) if marks else lines
        # As text: 1.11 and 1.112 are different lambdas.
        exact = pl.col("lambda").map_elements(lambda lam: f"{lam:g}", return_dtype=pl.String)
        grids.append(Grid(grid.title, lines.with_columns(exact)))
    return grids


TABLE = MethodTable(grids=shortcut_grids)
