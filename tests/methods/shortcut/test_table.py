"""What a finished run prints: the verdict, then grids with the model's name once."""

import io

import polars as pl
from rich.console import Console

from cutaway.methods.shortcut import api as shortcut
from cutaway.methods.shortcut.table import SHOWN_LAMBDAS, TABLE
from cutaway.report.terminal import record_view
from tests.methods.shortcut.toy import OTHER


def grids_of(result) -> dict[str, pl.DataFrame]:
    return {title.partition(":")[0]: table for title, table in TABLE.grids(result.rows, result)}


def test_an_evaluation_is_layer_by_kind(evaluated, toy) -> None:
    grids = grids_of(evaluated)
    precision = grids["precision@1"]
    assert precision["layer"].to_list() == [*range(toy.layers + 1)]
    assert precision.columns[1:] == list(evaluated.summary["precision@1"])
    for kind, values in evaluated.summary["precision@1"].items():
        assert precision[kind].to_list() == values
    assert grids["KL divergence from the full model's distribution, in nats"].height == 4
    parts = grids["precision@1 with norms, attention or MLP replaced after a layer"]
    assert {"attn", "mlp", "norms"} == set(parts.columns) - {"layer"}
    schedules = grids["schedules that run some of the blocks"]
    assert set(schedules["schedule"].str.extract("^([a-z]+):")) == {"schedule", "alternate"}


def test_a_fit_is_r2_by_layer_and_kind(fitted, toy) -> None:
    [table] = grids_of(fitted).values()
    assert table["source"].to_list() == [*range(toy.layers)]
    assert {"id", "mat"} <= set(table.columns)


def test_an_exit_is_a_curve_per_kind_with_the_calibrated_point(options, fitted, maps_file) -> None:
    result = shortcut.exit(
        **options, text=OTHER, shortcut=maps_file, agreement=0.6, confidence="gap,max"
    )
    grids = grids_of(result)
    assert list(grids) == ["exits with id", "exits with mat"]
    for one in result.summary["calibrated"]:
        table = grids[f"exits with {one['kind']}"]
        [line] = table.filter(pl.col("lambda") == f"{one['setting']:g}").to_dicts()
        assert line[f"{one['confidence']} layers"] == one["layers"]
        assert line[f"{one['confidence']} agreement"] == one["agreement"]
        assert one["confidence"] in line["calibrated"].split()
        assert {f"{lam:g}" for lam in SHOWN_LAMBDAS} <= set(table["lambda"])


def test_the_models_name_is_not_repeated_on_every_line(evaluated, fitted) -> None:
    for result in (evaluated, fitted):
        out = io.StringIO()
        Console(file=out, width=170, color_system=None).print(record_view(result.record))
        before_facts = out.getvalue().partition("\nrun ")[0]
        title, _, below = before_facts.partition("\n")
        assert title == "shortcut: toy on toy"
        assert "toy" not in below
        assert result.verdict[0][:40] in before_facts
