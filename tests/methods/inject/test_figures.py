"""Figures of inject: every one draws what its rows say, or says how to get rows."""

import json
from types import SimpleNamespace

import polars as pl
import pytest

from cutaway.core.errors import Missing
from cutaway.methods.inject.figure_styles import training_styles
from cutaway.methods.inject.figures import FIGURES
from cutaway.methods.inject.figures_ledger import ledger_table, pareto_table
from cutaway.methods.inject.rows import DETAILS_FILE, InjectCoordinates, inject_frame
from cutaway.methods.inject.table import inject_table

NAMES = ("skill", "docs", "cola")
CELLS = [("none", 0.0), ("ewc", 0.1), ("ewc", 1.0), ("ewc+lora4", 1.0)]


def rows_of() -> pl.DataFrame:
    rows = []
    for number, (name, strength) in enumerate(CELLS):
        for seed in (0, 1):
            where = InjectCoordinates("m", "arithmetic", name, strength, seed)
            exact = 0.9 - 0.1 * number + 0.02 * seed
            rows += [
                where.row("after", "arithmetic test", "exact_match", exact, low=0.1, high=0.95),
                where.row("after", "arithmetic op +", "exact_match", exact, low=0.1, high=0.95),
                where.row("after", "arithmetic test", "log_rmse", 0.4),
                where.row("after", "arithmetic test", "undecodable", 0.0),
                where.row("after", "news", "forgetting", 1.0 - 0.2 * number),
                where.row("after", "news", "lm_loss", 3.0),
                where.row("after", "news", "probe_forgetting", 0.1),
                where.row("after", "cola", "finetune_forgetting", 0.05, low=0.0, high=0.1),
                where.row("drift", "1/attn", "drift", 0.3),
                where.row("drift", "2/mlp", "drift", 0.1),
            ]
            for step in (0, 10):
                rows += [
                    where.row("training", "curve", metric, 0.1 * step, step=step)
                    for metric in ("exact_match", "retained_loss", "skill")
                ]
    where = InjectCoordinates("m", "arithmetic", "fisher")
    rows += [where.row("fisher", f"{i}/attn", "mass of skill", 0.5) for i in (1, 2)]
    return inject_frame(rows)


@pytest.fixture
def record(tmp_path):
    points = {"base": [[0, 0], [1, 1]], "ewc-1-seed0": [[0, 0.1], [1, 1.1]]}
    found = {
        "tops": [
            {"where": where, "curves": {n: {"values": [3, 2, 1], "mean": [2, 2, 2]} for n in NAMES}}
            for where in ("all layers", "layer 1", "layer 2")
        ],
        "maps": [{"layer": i, "way": w, "points": points} for i in (1, 2) for w in ("pca", "tsne")],
    }
    (tmp_path / DETAILS_FILE).write_text(json.dumps(found))
    return SimpleNamespace(path=str(tmp_path))


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_data_a_title_and_a_caption(name: str, record) -> None:
    figure = FIGURES[name](rows_of(), record)
    assert figure.data
    assert figure.layout.title.text
    assert len(figure.layout.meta["caption"]) > 60
    json.loads(figure.to_json())


@pytest.mark.parametrize("name", FIGURES)
def test_a_run_without_such_rows_says_how_to_get_them(name: str, tmp_path) -> None:
    nothing = rows_of().filter(pl.col("metric") == "nothing")
    with pytest.raises(Missing, match="inject"):
        FIGURES[name](nothing, SimpleNamespace(path=str(tmp_path)))


def test_points_are_means_over_seeds_with_their_interval() -> None:
    first = pareto_table(rows_of()).row(0, named=True)
    assert first["regulariser"] == "none"
    assert first["exact_match"] == pytest.approx(0.91)
    # 12.7062 is Student's t of two seeds; no share is above 1.
    assert first["exact_match_low"] == pytest.approx(0.91 - 12.7062 * 0.01, abs=1e-5)
    assert first["exact_match_high"] == 1.0


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


def test_the_table_has_a_line_per_training_and_a_fisher_its_mass() -> None:
    assert inject_table(rows_of()).height == len(CELLS)
    where = InjectCoordinates("m", "docs", "fisher")
    masses = inject_frame([where.row("fisher", f"{i}/mlp", "mass", 0.1 * i) for i in (1, 2)])
    assert inject_table(masses)["probe"].to_list() == ["2/mlp", "1/mlp"]


def test_every_training_looks_different() -> None:
    found = training_styles(rows_of())
    assert set(found) == set(CELLS)
    assert len({(look.colour, look.dash, look.symbol) for look in found.values()}) == len(CELLS)
    assert len({look.name for look in found.values()}) == len(CELLS)


def test_the_ledger_draws_losses_and_scores_apart() -> None:
    shown = FIGURES["ledger"](rows_of(), None).data
    words = {label for trace in shown for label in trace.x}
    assert words == {"news<br>loss", "news<br>probe", "cola<br>fine-tune"}
    assert len({trace.xaxis for trace in shown}) == 2


@pytest.mark.parametrize(("seeds", "low", "high"), [
    # 12.7062 is Student's t of two seeds.
    ((0, 1), 0.05 - 12.7062 * 0.02, 0.05 + 12.7062 * 0.02),
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
