"""The tables of graft: one line per mask, constant columns dropped, overlaps as a matrix."""

from types import SimpleNamespace

import polars as pl

from cutaway.methods.graft.rows import GRAFT_SCHEMA, GraftCoordinates
from cutaway.methods.graft.spec import BASELINES
from cutaway.methods.graft.table import (
    KIND_LABELS,
    TABLE,
    graft_results_table,
    kind_rank,
    seed_means,
    whole_model_rows,
)
from cutaway.recipe.result import table

HERE = GraftCoordinates("base", "tuned", "task")


def masks(**more) -> pl.DataFrame:
    cells = [("base", 0.0), ("tuned", 1.0), ("learned", 0.1), ("learned", 0.2), ("random", 0.1)]
    rows = [
        HERE.row(kind, "accuracy", 0.5 + seed / 10, sparsity=share, seed=seed, data="set", **more)
        for kind, share in cells
        for seed in (0, 1)
    ]
    return table(rows, GRAFT_SCHEMA)


def test_every_kind_has_a_label_and_baselines_come_last() -> None:
    assert {"base", "tuned", "learned", "removed", *BASELINES} == set(KIND_LABELS)
    assert kind_rank("learned") < min(kind_rank(kind) for kind in BASELINES)
    assert kind_rank("a new kind") == len(KIND_LABELS)


def test_means_are_over_seeds() -> None:
    means = seed_means(masks())
    assert set(means["seeds"]) == {2}
    assert all(abs(value - 0.55) < 1e-12 for value in means["mean"])


def test_a_line_per_mask_and_size_without_constant_columns() -> None:
    shown = graft_results_table(pl.concat([masks(), masks(step=3)]))
    assert shown.height == 5
    assert not {"base", "task", "data"} & set(shown.columns)
    assert shown["mask"][0] == "base"
    assert whole_model_rows(masks(step=3)).is_empty()


def test_overlaps_make_a_matrix() -> None:
    rows = [
        GraftCoordinates("base", None, i).row("learned", "overlap", 1.0 if i == j else 0.25, data=j)
        for i in "ab"
        for j in "ab"
    ]
    shown = graft_results_table(table(rows, GRAFT_SCHEMA))
    assert shown.columns == ["skill", "a", "b"]
    assert float(shown["b"][0]) == 0.25


def test_an_evaluation_is_a_grid_of_skills_and_sets() -> None:
    scores = {"sst2": {"sst2": 0.9, "cr": 0.8}, "trec": {"sst2": 0.5, "cr": 0.4}}
    base = {skill: dict.fromkeys(line, 0.5) for skill, line in scores.items()}
    summary = {"verb": "eval", "metric": "accuracy", "matrix": {"base": base, "learned": scores}}
    [(title, grid)] = TABLE.grids(masks(), SimpleNamespace(summary=summary))
    assert title == "accuracy of the base model, without -> with the skill"
    assert grid.to_dicts() == [
        {"skill": "sst2", "sst2": "0.500 -> 0.900", "cr": "0.500 -> 0.800"},
        {"skill": "trec", "sst2": "0.500 -> 0.500", "cr": "0.500 -> 0.400"},
    ]
    summary["matrix"] |= {"tuned": scores, "removed": base}
    assert len(TABLE.grids(masks(), SimpleNamespace(summary=summary))) == 2
    assert TABLE.grids(masks(), SimpleNamespace(summary={"verb": "learn"})) == []
