"""The figures of probe by layer: the line figure and the map with poolers."""

import polars as pl
import pytest

from cutaway.core.errors import Missing
from cutaway.methods.probe.aggregate import aggregate_cells, chosen_cell
from cutaway.methods.probe.figures_layers import layer_pooler_heatmap, layer_scores
from cutaway.report import theme
from tests.report.fake_runs import FakeRecord, probe_rows


def lower_is_better(rows: pl.DataFrame) -> pl.DataFrame:
    """The same rows as errors of a regression."""
    flipped = {"value": 1 - pl.col("value"), "low": 1 - pl.col("high"), "high": 1 - pl.col("low")}
    return rows.with_columns(metric=pl.lit("mae"), **flipped)


@pytest.mark.parametrize("flip", [False, True])
def test_the_best_layer_is_named_where_it_is(flip: bool) -> None:
    rows = lower_is_better(probe_rows()) if flip else probe_rows()
    metric = "mae" if flip else "accuracy"
    top = chosen_cell(aggregate_cells(rows, metric), metric)
    note = layer_scores(rows, FakeRecord(rows)).layout.annotations[-1]
    values = rows.filter(pl.col("kind") == "probe").group_by("layers").agg(pl.col("value").mean())
    assert top["mean"] == pytest.approx(values["value"].min() if flip else values["value"].max())
    assert (note.x, note.y) == (float(top["layers"]), top["mean"])
    assert f"layer {top['layers']}" in note.text


def test_the_line_shows_the_mean_of_each_layer() -> None:
    rows = probe_rows(layers=("0", "1", "2", "mean:all"))
    line = next(t for t in layer_scores(rows, FakeRecord(rows)).data if t.name == "probe")
    for layer, value in zip(("0", "1", "2", "mean:all"), line.y, strict=True):
        mine = rows.filter((pl.col("layers") == layer) & (pl.col("kind") == "probe"))
        assert value == pytest.approx(mine["value"].mean())


def test_baselines_without_layers_are_level_lines_over_all_layers() -> None:
    rows = probe_rows(layers=("0", "1", "5"))
    drawn = {t.name: t for t in layer_scores(rows, FakeRecord(rows)).data}
    for kind in ("majority", "bow", "tfidf"):
        line = drawn[theme.BASELINE_STYLES[kind][0]]
        mean = rows.filter(pl.col("classifier") == kind)["value"].mean()
        assert list(line.y) == pytest.approx([mean] * len(line.y))
        assert (min(line.x), max(line.x)) == (0, 5)


def test_a_data_set_is_a_panel_with_its_own_best_layer() -> None:
    rows = probe_rows(sets=("a", "b"))
    figure = layer_scores(rows, FakeRecord(rows))
    notes = [n for n in figure.layout.annotations if n.text.startswith("chosen: ")]
    assert len(notes) == 2 and len({n.yref for n in notes}) == 2


@pytest.mark.parametrize("flip", [False, True])
def test_the_map_has_a_square_per_layer_and_pooler_and_frames_the_best(flip: bool) -> None:
    rows = probe_rows(pools=("last", "mean"), layers=("1", "2", "3"))
    rows = lower_is_better(rows) if flip else rows
    figure = layer_pooler_heatmap(rows, FakeRecord(rows))
    grid, frame = figure.data[0], figure.layout.shapes[0]
    probes = rows.filter(pl.col("kind") == "probe")
    for y, pool in enumerate(("last", "mean")):
        for x, layer in enumerate(("1", "2", "3")):
            mine = probes.filter((pl.col("pool") == pool) & (pl.col("layers") == layer))
            assert grid.z[y][x] == pytest.approx(mine["value"].mean())
    values = [v for line in grid.z for v in line]
    framed = grid.z[round(frame.y0 + 0.5)][round(frame.x0 + 0.5)]
    assert framed == (min(values) if flip else max(values))
    assert figure.layout.coloraxis.reversescale is flip


def test_a_square_that_was_not_measured_is_empty_and_says_so() -> None:
    rows = probe_rows(pools=("last", "mean"), layers=("1", "2", "3"))
    rows = rows.filter(~((pl.col("pool") == "mean") & (pl.col("layers") == "2")))
    grid = layer_pooler_heatmap(rows, FakeRecord(rows)).data[0]
    assert grid.z[1][1] is None and grid.text[1][1] == ""
    assert grid.hovertext[1][1] == "not measured"


def test_a_run_with_one_layer_or_one_pooler_names_the_option_that_is_needed() -> None:
    rows = probe_rows(layers=("3",))
    with pytest.raises(Missing, match="--layers all"):
        layer_scores(rows, FakeRecord(rows))
    rows = probe_rows()
    with pytest.raises(Missing, match="--pool last,mean"):
        layer_pooler_heatmap(rows, FakeRecord(rows))
