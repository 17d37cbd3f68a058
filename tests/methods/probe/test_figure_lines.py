"""Lines of probe figures: how they are told apart, chosen and drawn."""

import plotly.graph_objects as go
import polars as pl
import pytest
from plotly.subplots import make_subplots

from cutaway.methods.probe import figure_lines
from cutaway.methods.probe.aggregate import aggregate_cells, scored_probe_cells
from tests.report.fake_runs import probe_rows

MANY = {"pools": ("last", "mean", "max"), "classifiers": ("logistic", "lda", "nb")}


def cells(**options) -> pl.DataFrame:
    return aggregate_cells(probe_rows(**options), "accuracy")


def test_no_two_lines_of_a_grid_have_the_same_colour_and_dash() -> None:
    table = cells(**MANY)
    series, left_out = figure_lines.panel_series(
        table, "accuracy", figure_lines.line_style(table), most=9
    )
    assert len(series) == 9 and left_out == 0
    assert len({(one.colour, one.dash) for one in series}) == 9
    assert len({one.name for one in series}) == 9


def test_every_cell_is_in_exactly_one_line() -> None:
    table = cells(**MANY)
    series, _ = figure_lines.panel_series(
        table, "accuracy", figure_lines.line_style(table), most=99
    )
    assert sum(one.cells.height for one in series) == scored_probe_cells(table).height
    for one in series:
        assert one.cells["layers"].is_unique().all()


@pytest.mark.parametrize("most", [3, 4, 6])
def test_the_lines_left_out_are_worse_than_those_drawn_but_every_colour_stays(most: int) -> None:
    table = cells(**MANY)
    style = figure_lines.line_style(table)
    every, _ = figure_lines.panel_series(table, "accuracy", style, most=9)
    drawn, left_out = figure_lines.panel_series(table, "accuracy", style, most=most)
    assert (len(drawn), left_out) == (most, 9 - most)
    assert {one.colour for one in drawn} == set(style.hues.values())
    best = {one.name: one.cells["mean"].max() for one in every}
    first = {}
    for one in sorted(every, key=lambda one: -best[one.name]):
        first.setdefault(one.colour, one.name)
    names = {one.name for one in drawn}
    missing = [value for name, value in best.items() if name not in names]
    others = [best[name] for name in names - set(first.values())]
    assert set(first.values()) <= names
    assert not others or min(others) >= max(missing)


def test_a_grid_with_one_line_is_called_probe() -> None:
    table = cells()
    series, left_out = figure_lines.panel_series(table, "accuracy", figure_lines.line_style(table))
    assert [one.name for one in series] == ["probe"] and left_out == 0


def test_a_band_goes_along_the_upper_bounds_and_back_along_the_lower_ones() -> None:
    table = cells(layers=("1", "2", "3"))
    series, _ = figure_lines.panel_series(table, "accuracy", figure_lines.line_style(table))
    figure = make_subplots(rows=1, cols=1)
    figure_lines.draw_lines(figure, series, lambda t: [float(n) for n in t["layers"]], 1)
    band, line = figure.data
    assert list(band.x) == [1, 2, 3, 3, 2, 1]
    assert all(
        low < y < high for high, y, low in zip(band.y[:3], line.y, band.y[:2:-1], strict=True)
    )
    assert list(line.y) == scored_probe_cells(table)["mean"].to_list()


def test_a_line_in_two_panels_is_once_in_the_legend() -> None:
    table = cells(layers=("1", "2"))
    series, _ = figure_lines.panel_series(table, "accuracy", figure_lines.line_style(table))
    figure = make_subplots(rows=2, cols=1)
    for row in (1, 2):
        figure_lines.draw_lines(figure, series, lambda t: [1.0, 2.0], row)
    lines = [trace for trace in figure.data if trace.mode == "lines+markers"]
    assert [trace.showlegend for trace in lines] == [True, False]


@pytest.mark.parametrize(
    ("pool", "classifier", "expected"),
    [
        ("mean", "lda", ("mean", "lda")),
        ("mean", "nb", ("mean", "logistic")),
        ("max", "lda", ("last", "lda")),
    ],
)
def test_a_twin_is_taken_from_the_same_pooler_and_classifier_or_the_nearest(
    pool: str, classifier: str, expected: tuple[str, str]
) -> None:
    table = cells(pools=("last", "mean"), classifiers=("logistic", "lda"), layers=("1", "2"))
    cell = {"model": "small-lm", "data": "gen:sentiment", "pool": pool, "classifier": classifier}
    found = figure_lines.matching_cells(table, "twin", cell)
    assert set(found.select("kind", "pool", "classifier").rows()) == {("twin", *expected)}
    assert found["layers"].to_list() == ["1", "2"]
    other = figure_lines.matching_cells(table, "twin", {**cell, "model": "large-lm"})
    assert other.is_empty()


def test_layers_are_at_their_number_and_mixes_to_the_right_of_them() -> None:
    where = figure_lines.layer_positions(["0", "mean:all", "10", "2", "concat:1,2", "-", "2"])
    assert {name: where[name] for name in ("0", "2", "10")} == {"0": 0.0, "2": 2.0, "10": 10.0}
    assert 10 < where["mean:all"] < where["concat:1,2"]
    assert "-" not in where


@pytest.mark.parametrize("layers", [5, 12, 13, 40, 97])
def test_the_axis_of_layers_has_at_most_a_dozen_numbers_and_every_mix(layers: int) -> None:
    where = figure_lines.layer_positions([*map(str, range(layers)), "mean:all"])
    figure = go.Figure()
    figure_lines.layer_axis(figure, where)
    texts = list(figure.layout.xaxis.ticktext)
    assert texts[-1] == "mean<br>all" and texts[0] == "0"
    assert len(texts) - 1 <= 13
    assert list(figure.layout.xaxis.tickvals[:-1]) == [float(text) for text in texts[:-1]]


def test_the_hover_text_gives_repeats_only_if_there_are_several() -> None:
    one, four = (
        figure_lines.hover_texts(cells(layers=("1",), baselines=False, repeats=n)) for n in (1, 4)
    )
    assert "repeats" not in one[0]
    assert four[0].endswith(", 4 repeats")
