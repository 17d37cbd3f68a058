import pytest

from cutaway.report.panels import MAX_PANELS, draw_baseline, omitted_note, stack_panels
from cutaway.report.theme import BASELINE_STYLES


@pytest.mark.parametrize("count", [1, 2, MAX_PANELS, MAX_PANELS + 3])
def test_panels_are_stacked_up_to_a_maximum(count: int) -> None:
    panels = stack_panels([f"set {i}" for i in range(count)], each=200)
    shown = min(count, MAX_PANELS)
    assert (len(panels.titles), panels.hidden) == (shown, count - shown)
    assert len(list(panels.figure.select_yaxes())) == shown
    assert len(panels.figure.layout.annotations) == (shown if count > 1 else 0)
    assert panels.height > 200 * shown


def test_titles_from_data_are_escaped() -> None:
    panels = stack_panels(["<b>x</b>", "y"], each=100)
    assert panels.figure.layout.annotations[0].text == "&lt;b&gt;x&lt;/b&gt;"


def test_a_baseline_is_in_the_legend_once_and_keeps_its_style() -> None:
    figure = stack_panels(["a", "b"], each=100).figure
    for row in (1, 2):
        draw_baseline(figure, "bow", [0, 1], [0.6, 0.6], row)
    name, colour, dash = BASELINE_STYLES["bow"]
    assert [trace.showlegend for trace in figure.data] == [True, False]
    assert {(t.name, t.line.color, t.line.dash) for t in figure.data} == {(name, colour, dash)}


@pytest.mark.parametrize(
    ("lines", "hidden", "note"),
    [
        (0, 0, ""),
        (1, 0, " Not shown: 1 more line."),
        (3, 1, " Not shown: 3 more lines and 1 more panel."),
    ],
)
def test_omitted_lines_and_panels_are_counted(lines: int, hidden: int, note: str) -> None:
    assert omitted_note(lines, hidden) == note
