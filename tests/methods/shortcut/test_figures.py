"""Figures of shortcut: every one draws what its rows say, or says how to get rows."""

import json

import polars as pl
import pytest

from cutaway.core.errors import Missing
from cutaway.methods.shortcut.figures import FIGURES
from cutaway.report.export import figure_csv

COLUMNS = ("source", "target", "layer", "lambda", "confidence", "low", "high")


def a_row(kind: str, metric: str, value: float, **place) -> dict:
    blank = dict.fromkeys(COLUMNS)
    return (
        {"model": "m", "text": "t", "kind": kind, "metric": metric, "value": value} | blank | place
    )


def rows_of(*rows: dict) -> pl.DataFrame:
    kinds = {"lambda": pl.Float64, "confidence": pl.String, "low": pl.Float64, "high": pl.Float64}
    return pl.DataFrame(rows, schema_overrides=kinds, infer_schema_length=None)


METRICS = ("precision@1", "precision@5", "precision@10", "surprisal", "kl", "perplexity")
LENS = [
    a_row(kind, metric, 0.2 * layer, layer=layer, source=layer, target=3, low=0.1, high=0.9)
    for kind in ("id", "mat", "part:mlp")
    for metric in METRICS
    for layer in range(4)
]
R2 = [
    a_row(kind, "r2", -3.0 if kind == "id" else 0.5, source=i, target=j, layer=i)
    for kind in ("id", "mat")
    for i in range(3)
    for j in range(i + 1, 4)
]
EXITS = [
    a_row("mat", metric, value, **{"lambda": lam}, confidence="gap")
    for lam in (0.0, 0.5, 1.0)
    for metric, value in (("layers", 1 + lam), ("precision@1", lam))
] + [a_row("mat", "precision@1", 0.3, layer=1, confidence="fixed")]
ALL = rows_of(*LENS, *R2, *EXITS)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_data_a_title_and_a_caption(name: str) -> None:
    figure = FIGURES[name](ALL, None)
    assert figure.data
    assert figure.layout.title.text
    assert len(figure.layout.meta["caption"]) > 60
    json.loads(figure.to_json())


@pytest.mark.parametrize("name", FIGURES)
def test_a_run_without_such_rows_says_how_to_get_them(name: str) -> None:
    with pytest.raises(Missing, match="shortcut"):
        FIGURES[name](ALL.filter(pl.col("metric") == "nothing"), None)


def test_lines_carry_the_values_of_their_kind() -> None:
    lines = {trace.name: trace for trace in FIGURES["precision"](ALL, None).data if trace.name}
    assert set(lines) == {"id", "mat"}
    assert list(lines["mat"].y) == pytest.approx([0.0, 0.2, 0.4, 0.6])


@pytest.mark.parametrize("name", FIGURES)
def test_two_runs_are_drawn_apart(name: str) -> None:
    both = pl.concat([ALL, ALL.with_columns(pl.col("model") + " [ab12]")])
    one, two = (FIGURES[name](rows, None).data for rows in (ALL, both))
    assert len(two) == 2 * len(one)
    names = [trace.name for trace in two if trace.name]
    assert len(names) == len(set(names))
    assert all("m [ab12]" in name for name in names[len(names) // 2 :])


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_gives_its_numbers_as_csv(name: str) -> None:
    head, *lines = figure_csv(FIGURES[name](ALL, None)).splitlines()
    assert "x,y" in head and lines


def test_the_r2_map_draws_negative_values_as_0_and_tells_them() -> None:
    mat, same = FIGURES["r2"](ALL, None).data
    assert max(v for line in mat.z for v in line if v is not None) == 0.5
    assert {v for line in same.z for v in line if v is not None} == {0.0}
    assert same.customdata[0][0][0] == "-3.00"
