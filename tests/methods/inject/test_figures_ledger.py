"""The Pareto figure and the ledger: means, intervals, the front, adapters."""

import polars as pl
import pytest

from cutaway.core.errors import Missing
from cutaway.measure.intervals import over_seed_rows
from cutaway.methods.inject.figures import FIGURES
from cutaway.methods.inject.figures_ledger import ledger, ledger_table, pareto, pareto_table
from cutaway.methods.inject.table import inject_table
from tests.methods.inject.test_figures import rows_of


def test_points_are_means_over_seeds_with_their_interval() -> None:
    first = pareto_table(rows_of()).row(0, named=True)
    assert first["regulariser"] == "none"
    assert first["exact_match"] == pytest.approx(0.91)
    # The rows' own interval and the spread of the seeds.
    both = over_seed_rows([0.9, 0.92], [0.1, 0.1], [0.95, 0.95])
    assert first["exact_match_low"] == pytest.approx(both.low) and both.low < 0.1
    assert first["exact_match_high"] == pytest.approx(both.high) and 0.95 < both.high < 1


def test_the_point_of_one_seed_has_the_interval_of_its_rows() -> None:
    rows = rows_of().filter(pl.col("seed").is_null() | (pl.col("seed") == 0))
    ends = pl.when(pl.col("metric") == "forgetting").then
    rows = rows.with_columns(low=ends(0.1).otherwise("low"), high=ends(1.7).otherwise("high"))
    first = pareto_table(rows).row(0, named=True)
    for name, value in {"exact_match": (0.9, 0.1, 0.95), "forgetting": (1.0, 0.1, 1.7)}.items():
        assert (first[name], first[f"{name}_low"], first[f"{name}_high"]) == value
    assert inject_table(rows)["forgetting_high"][0] == 1.7
    drawn = FIGURES["pareto"](rows, None).data[1]
    assert drawn.error_x.array[0] == pytest.approx(0.7)
    assert drawn.error_x.arrayminus[0] == pytest.approx(0.9)


def test_adapters_are_hollow_points_and_hatched_bars() -> None:
    rows = rows_of()
    plain = rows.filter(pl.col("regulariser") == "none")
    rows = pl.concat([rows, plain.with_columns(pl.lit("none+lora4").alias("regulariser"))])
    lines = {
        trace.name: trace
        for trace in FIGURES["pareto"](rows, None).data
        if trace.showlegend is None
    }
    bars = {trace.name: trace for trace in FIGURES["ledger"](rows, None).data}
    for name in ("none", "none+lora4", "ewc", "ewc+lora4"):
        assert lines[name].marker.symbol.endswith("-open") == ("+lora" in name)
    assert {name: bool(bar.marker.pattern.shape) for name, bar in bars.items()} == {
        name: "+lora" in name for name in bars
    }
    assert {"none", "none+lora4"} <= set(bars)


def test_the_ledger_draws_losses_and_scores_apart() -> None:
    shown = FIGURES["ledger"](rows_of(), None).data
    words = {label for trace in shown for label in trace.x}
    assert words == {"news<br>loss", "news<br>probe", "cola<br>fine-tune"}
    assert len({trace.xaxis for trace in shown}) == 2


@pytest.mark.parametrize(("seeds", "low", "high"), [
    # The rows' own half width of 0.05 and the spread of two seeds.
    ((0, 1), -0.0268749, 0.1268749),
    ((0,), 0.0, 0.1),
])  # fmt: skip
def test_a_bar_has_the_interval_over_seeds_or_that_of_the_one_there_is(seeds, low, high) -> None:
    cola = (pl.col("probe") == "cola") & pl.col("seed").is_in(seeds)
    shift = pl.when(pl.col("seed") == 1).then(0.02).otherwise(-0.02 if len(seeds) > 1 else 0.0)
    first = ledger_table(rows_of().filter(cola).with_columns(value=pl.col("value") + shift))
    line = first.row(0, named=True)
    assert line["seeds"] == len(seeds) and line["value"] == pytest.approx(0.05)
    assert (line["low"], line["high"]) == pytest.approx((low, high), abs=1e-5)


def test_the_front_of_the_pareto_figure_is_what_no_point_beats() -> None:
    front = FIGURES["pareto"](rows_of(), None).data[0]
    points = pareto_table(rows_of())
    assert front.name == "Pareto front"
    assert front.y[-1] == points["exact_match"].max()
    assert list(front.x) == sorted(front.x)


def test_a_pareto_point_needs_both_exact_match_and_forgetting() -> None:
    rows = rows_of()
    both = pareto_table(rows)
    lone = pl.col("regulariser").is_in(["none"]) & (pl.col("metric") == "forgetting")
    assert pareto_table(rows.filter(~lone))["regulariser"].to_list() == [
        name for name in both["regulariser"] if name != "none"
    ]


def test_single_seeds_are_small_points_only_where_there_are_several() -> None:
    rows = rows_of()
    several = FIGURES["pareto"](rows, None).data
    one = FIGURES["pareto"](rows.filter(pl.col("seed") == 0), None).data
    small = [trace for trace in several if trace.showlegend is False]
    assert {trace.name for trace in small} == {"none", "ewc", "ewc+lora4"}
    # Two seeds of each of the four trainings.
    assert sum(len(trace.x) for trace in small) == 8
    assert not [trace for trace in one if trace.showlegend is False]


@pytest.mark.parametrize("figure", [pareto, ledger])
def test_rows_without_trainings_are_refused(figure) -> None:
    with pytest.raises(Missing, match="cutaway inject"):
        figure(rows_of().filter(pl.col("stage") == "drift"), None)
