"""Figures and table of graft: every one draws what its rows say, or says how to get rows."""

import json

import polars as pl
import pytest

from cutaway.core.errors import Missing
from cutaway.methods.graft.figures import FIGURES
from cutaway.methods.graft.rows import (
    GRAFT_SCHEMA,
    GraftCoordinates,
    with_seed_intervals,
)
from cutaway.methods.graft.spec import BASELINES
from cutaway.methods.graft.table import KIND_LABELS, graft_results_table
from cutaway.recipe.result import table

HERE = GraftCoordinates("base", "tuned", "task")
KINDS = ("learned", *BASELINES)
PLAIN = ("accuracy", "relative_gain", "agreement", "lm_loss", "ece", "size")


def measured() -> list[dict]:
    rows = []
    for kind, size in [
        ("base", 0.0),
        ("tuned", 1.0),
        *((k, s) for k in KINDS for s in (1e-4, 1e-3)),
    ]:
        place = {"sparsity": size, "seed": 0, "data": "task"}
        rows += [HERE.row(kind, m, 0.5, **place) | {"low": 0.4, "high": 0.6} for m in PLAIN]
        rows += [HERE.row(kind, f"bin_{n}", 0.5, bin=3, **place)
                 for n in ("confidence", "accuracy", "count")]  # fmt: skip
    for step in (0, 5, 10):
        rows.append(HERE.row("learned", "mask_score", step / 10, sparsity=1e-4, seed=0, step=step))
    for layer in (1, 2):
        rows.append(HERE.row("learned", "weights", 7.0, layer=layer, part="attn.q"))
        rows.append(HERE.row("learned", "density", 0.1, layer=layer, part="attn.q"))
        rows.append(HERE.row("learned", "head_weights", 3.0, layer=layer, head=layer, part="attn"))
    return [*rows, HERE.row("learned", "weights", 2.0, part="wte")]


def matrix(metric: str) -> list[dict]:
    return [
        GraftCoordinates("base", None, one).row(
            "learned", metric, float(one == two), data=two, sparsity=1e-4
        )
        for one in ("a", "b")
        for two in ("a", "b")
    ]


TABLES = {
    "ood": table(matrix("accuracy"), GRAFT_SCHEMA),
    "overlap": table(matrix("overlap"), GRAFT_SCHEMA),
}
ALL = table(measured(), GRAFT_SCHEMA)
# The figures of a course of tasks have tests of their own.
OWN = [name for name, draw in FIGURES.items() if not draw.__module__.endswith("continual")]


@pytest.mark.parametrize("name", OWN)
def test_every_figure_has_data_a_title_and_a_caption(name: str) -> None:
    figure = FIGURES[name](TABLES.get(name, ALL), None)
    assert figure.data
    assert figure.layout.title.text
    assert len(figure.layout.meta["caption"]) > 60
    json.loads(figure.to_json())


@pytest.mark.parametrize("name", OWN)
def test_rows_without_data_for_the_figure_name_the_command(name: str) -> None:
    with pytest.raises(Missing, match="cutaway graft"):
        FIGURES[name](ALL.filter(pl.col("metric") == "nothing"), None)


def test_a_line_of_the_curve_per_kind_of_mask_and_a_level_for_each_end() -> None:
    names = {trace.name for trace in FIGURES["sparsity"](ALL, None).data}
    assert names == {KIND_LABELS[kind] for kind in ("base", "tuned", *KINDS)}


def test_reliability_has_a_line_per_size_and_pools_the_seeds() -> None:
    said = {(1e-3, 0): (0.9, 1.0, 30), (1e-3, 1): (0.8, 0.6, 10), (1e-4, 0): (0.7, 0.2, 5)}
    rows = [
        HERE.row("learned", f"bin_{name}", value, bin=3, sparsity=size, seed=seed, data="task")
        for (size, seed), values in said.items()
        for name, value in zip(("confidence", "accuracy", "count"), values, strict=True)
    ]
    lines = {
        line.name: line for line in FIGURES["reliability"](table(rows, GRAFT_SCHEMA), None).data
    }
    assert list(lines) == ["calibrated", "learned mask, 1.0e-03", "learned mask, 1.0e-04"]
    assert list(lines["learned mask, 1.0e-03"].y) == pytest.approx([0.9])
    assert list(lines["learned mask, 1.0e-04"].y) == pytest.approx([0.2])


def test_the_atlas_shows_counts_and_names_weights_outside_the_blocks() -> None:
    figure = FIGURES["atlas"](ALL, None)
    assert [list(line) for line in figure.data[0].z] == [[7.0, 7.0]]
    assert "wte 2" in figure.layout.meta["caption"]
    heads = FIGURES["heads"](ALL, None).data[0].z
    assert [list(line) for line in heads] == [[0.0, 3.0, 0.0], [0.0, 0.0, 3.0]]


def test_the_table_has_the_ends_first_and_every_mask_at_every_size() -> None:
    table = graft_results_table(ALL)
    assert table["mask"].to_list()[:2] == [KIND_LABELS["base"], KIND_LABELS["tuned"]]
    assert table.height == 2 + 2 * len(KINDS)
    assert set(PLAIN) <= set(table.columns)


def test_the_overlap_table_is_a_matrix_by_name() -> None:
    table = graft_results_table(TABLES["overlap"])
    assert table.columns == ["skill", "a", "b"]
    assert table.row(0) == ("a", "1.000", "0")


def test_intervals_over_seeds_hold_the_mean_and_stay_shares() -> None:
    rows = [
        HERE.row("learned", "accuracy", v, sparsity=0.1, seed=s)
        for s, v in enumerate((0.9, 0.99, 1.0))
    ]
    found = with_seed_intervals([*rows, HERE.row("base", "accuracy", 0.5, sparsity=0.0)], 50.0)
    assert {(r["low"], r["high"]) for r in found[:3]} == {(found[0]["low"], 1.0)}
    assert 0.7 < found[0]["low"] < 0.963
    assert "low" not in found[3]
    assert table(found, GRAFT_SCHEMA).columns == list(GRAFT_SCHEMA)


SINGLE = ["sparsity", "gain", "agreement", "learning", "atlas", "heads", "reliability"]


@pytest.mark.parametrize("name", SINGLE)
def test_masks_of_several_pairs_are_never_taken_as_one(name: str) -> None:
    both = pl.concat([ALL, ALL.with_columns(base=pl.lit("other"))])
    with pytest.raises(Missing, match=r"have 2: base, other.*side by side"):
        FIGURES[name](both, None)
    table = graft_results_table(both)
    assert table.height == 2 * graft_results_table(ALL).height
    assert (
        set(table["base"]) == {"base", "other"} and "base" not in graft_results_table(ALL).columns
    )
