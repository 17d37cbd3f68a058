import colorsys

import plotly.graph_objects as go
import polars as pl
import pytest
from plotly.subplots import make_subplots

from cutaway.report import theme


def contrast(one: str, other: str) -> float:
    """The contrast ratio of the web's accessibility guidelines."""
    lights = sorted(_luminance(c) for c in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("mode", theme.MODE_COLOURS)
def test_every_line_colour_can_be_seen_on_both_grounds(mode: theme.ColourMode) -> None:
    ground = theme.MODE_COLOURS[mode]["background"]
    for colour in (
        *theme.PALETTE,
        theme.NEUTRAL,
        *(row[1] for row in theme.BASELINE_STYLES.values()),
    ):
        assert contrast(colour, ground) > 2.2, colour


@pytest.mark.parametrize("mode", theme.MODE_COLOURS)
def test_text_has_the_contrast_that_guidelines_ask_for(mode: theme.ColourMode) -> None:
    c = theme.MODE_COLOURS[mode]
    assert contrast(c["ink"], c["background"]) > 7
    assert contrast(c["soft"], c["background"]) > 4.5


def test_neighbours_in_the_palette_differ_in_hue_or_lightness() -> None:
    for one, other in zip(theme.PALETTE, theme.PALETTE[1:], strict=False):
        a, b = (
            colorsys.rgb_to_hls(*(int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)))
            for c in (one, other)
        )
        assert abs(a[0] - b[0]) > 0.05 or abs(a[1] - b[1]) > 0.1


def test_a_finished_figure_keeps_its_caption_in_both_modes_and_on_paper() -> None:
    figure = theme.finish_figure(go.Figure(go.Scatter(y=[1])), title="T", caption="Read <it> so.")
    assert theme.caption(theme.with_colour_mode(figure, "dark")) == "Read <it> so."
    picture = theme.as_picture(figure, "dark")
    assert picture.layout.title.subtitle.text == "Read &lt;it&gt; so."
    assert picture.layout.paper_bgcolor == theme.MODE_COLOURS["dark"]["background"]
    assert figure.layout.title.subtitle.text is None, "the figure itself is left as it was"


def test_a_faint_colour_is_the_same_colour_seen_through() -> None:
    assert theme.translucent("#ff8000", 0.5) == "rgba(255,128,0,0.5)"


def test_colours_of_shares_run_from_0_to_1_in_every_figure() -> None:
    figure = go.Figure(go.Heatmap(z=[[0.2, 0.4]], coloraxis="coloraxis"))
    axis = figure.update_layout(coloraxis=theme.unit_coloraxis("share of rows")).layout.coloraxis
    assert (axis.cmin, axis.cmax, axis.colorbar.title.text) == (0, 1, "share of rows")


def test_more_names_than_colours_start_over() -> None:
    names = [str(i) for i in range(len(theme.PALETTE) + 1)]
    given = theme.assign_colours(names)
    assert given[names[0]] == given[names[-1]] and len(given) == len(names)


@pytest.mark.parametrize(
    ("values", "kind", "step"),
    [
        ([0, 1, 2], None, 1),
        (pl.Series([0, 1, 2]), None, 1),
        ([0, 30], None, None),
        ([0.5, 1], None, None),
        (["a", "b"], None, None),
        ([3], None, None),
        ([1, 2], "log", None),
    ],
)
def test_few_whole_numbers_have_no_ticks_between_them(values, kind, step) -> None:
    figure = make_subplots(rows=1, cols=2)
    figure.add_trace(go.Scatter(x=values, y=[0.5] * len(values)), row=1, col=2)
    figure.update_xaxes(type=kind, col=2)
    theme.finish_figure(figure, title="t", caption="c")
    assert figure.layout.xaxis2.dtick == step
    assert figure.layout.yaxis2.dtick is None


def test_points_under_other_points_show_as_rings() -> None:
    figure = go.Figure(
        [
            go.Scatter(x=[0, 1, 2], y=[0.1, 0.5, 1.0], mode="lines+markers", marker={"size": 8}),
            go.Scatter(x=[0, 1, 2], y=[0.3, 0.5, 1.0], mode="lines+markers"),
            go.Scatter(x=[0, 1, 2], y=[0.6, 0.7, 1.0], mode="markers"),
            go.Scatter(x=[0, 1, 2], y=[0.1, 0.5, 1.0], mode="lines"),
        ]
    )
    theme.finish_figure(figure, title="t", caption="c")
    sizes = [trace.marker.size for trace in figure.data]
    assert sizes == [(8, 13, 18), (6, 6, 11), None, None]


def test_distant_points_other_panels_and_clouds_keep_their_size() -> None:
    figure = make_subplots(rows=1, cols=2)
    for column in (1, 2):
        figure.add_trace(go.Scatter(x=["a", "b"], y=[0, 1], mode="markers"), row=1, col=column)
    figure.add_trace(go.Scatter(x=["b", "a"], y=[0, 1], mode="markers"), row=1, col=1)
    cloud = go.Scatter(x=[1.0] * 600, y=[1.0] * 600, mode="markers")
    for one in (figure, go.Figure([cloud, cloud])):
        theme.finish_figure(one, title="t", caption="c")
        assert all(trace.marker.size is None for trace in one.data)


def test_what_the_pointer_shows_is_not_in_a_picture_file() -> None:
    figure = theme.finish_figure(
        go.Figure(), title="t", caption="Cells.", pointer="Hover to see more."
    )
    assert theme.caption(figure) == "Cells. Hover to see more."
    assert theme.as_picture(figure).layout.title.subtitle.text == "Cells."
