"""Figures and table of finetune: they draw what the rows say, or say how to get rows."""

import json

import polars as pl
import pytest

from cutaway.core.errors import Missing
from cutaway.methods.finetune.figures import FIGURES
from cutaway.methods.finetune.table import finetune_table
from cutaway.report.figures import figures_of


def a_row(kind: str, step: int, part: str, metric: str, value: float, **more) -> dict:
    cell = {"base": "m", "task": "t", "mode": "prompt", "kind": kind, "shots": 16, "seed": 13}
    place = {
        "step": step,
        "part": part,
        "metric": metric,
        "value": value,
        "low": None,
        "high": None,
    }
    return cell | place | more


ROWS = [
    *(a_row("tuned", step, "train", "loss", 1 / (step + 1)) for step in (10, 20)),
    *(a_row("tuned", step, "dev", "accuracy", 0.5 + step / 50) for step in (0, 10, 20)),
    a_row("base", 0, "test", "accuracy", 0.5, low=0.4, high=0.6),
    a_row("tuned", 20, "test", "accuracy", 0.9, low=0.8, high=0.95),
    a_row("majority", 0, "test", "accuracy", 0.55, low=0.5, high=0.6),
    a_row("tuned", 20, "test", "ece", 0.05),
]


def frame(*rows: dict) -> pl.DataFrame:
    return pl.DataFrame(rows, schema_overrides={"low": pl.Float64, "high": pl.Float64})


ALL = frame(*ROWS)
TWO = frame(*ROWS, *(row | {"seed": 21} for row in ROWS))


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("rows", [ALL, TWO], ids=["one run", "two runs"])
def test_every_figure_has_data_a_title_and_a_caption(name: str, rows: pl.DataFrame) -> None:
    figure = FIGURES[name](rows, None)
    assert figure.data
    assert figure.layout.title.text
    assert len(figure.layout.meta["caption"]) > 60
    json.loads(figure.to_json())
    assert figures_of("finetune")[name] is FIGURES[name]


@pytest.mark.parametrize("name", FIGURES)
def test_rows_without_data_for_the_figure_name_the_command(name: str) -> None:
    with pytest.raises(Missing, match="cutaway finetune"):
        FIGURES[name](ALL.filter(pl.col("metric") == "nothing"), None)


def test_runs_are_named_by_the_coordinates_that_differ() -> None:
    names = {trace.name for trace in FIGURES["curve"](TWO, None).data}
    assert {"seed 13: train", "seed 21: train"} <= names


def test_bars_carry_their_intervals() -> None:
    after = FIGURES["scores"](ALL, None).data[0]
    assert after.name == "after fine-tuning"
    assert after.error_y.array[0] == pytest.approx(0.05)
    assert after.error_y.arrayminus[0] == pytest.approx(0.1)


def test_the_table_puts_before_and_after_side_by_side() -> None:
    table = finetune_table(TWO)
    assert table.height == 4
    line = table.row(0, named=True)
    assert (line["before"], line["after"], line["majority baseline"]) == (0.5, 0.9, 0.55)
    assert (line["low"], line["high"]) == (0.8, 0.95)
    assert table.filter(pl.col("metric") == "ece")["before"].to_list() == [None, None]
