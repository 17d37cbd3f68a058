import re
from dataclasses import replace
from typing import get_args
from xml.etree import ElementTree

import pytest

from cutaway.report.drawing.columns import DRAWERS, SCORES, Place, draw_track
from cutaway.report.drawing.geometry import Rows
from cutaway.report.drawing.values import Track, TrackKind
from tests.report.drawing.examples import example, movement_track, score_track, with_gaps

BOX = re.compile(r"M(-?[\d.]+),(-?[\d.]+)h(-?[\d.]+)v(-?[\d.]+)")


def place(layers: int) -> Place:
    return Place(Rows(layers), 178)


def tracks(blocks: int) -> list[Track]:
    return list(example(blocks, movement=True).tracks)


def paths(svg: str) -> dict[str, str]:
    root = ElementTree.fromstring(f"<g>{svg}</g>")
    return {p.get("class"): p.get("d") for p in root.iter("path")}


def boxes(svg: str, name: str) -> list[tuple[float, float]]:
    """Left and right edges of the boxes of a class, from the lowest layer up."""
    found = [tuple(map(float, m.groups())) for m in BOX.finditer(paths(svg).get(name, ""))]
    return [(x, x + w) for x, _, w, _ in sorted(found, key=lambda box: -box[1])]


def test_every_kind_of_track_can_be_drawn() -> None:
    assert set(DRAWERS) == set(get_args(TrackKind)) == {track.kind for track in tracks(6)}


@pytest.mark.parametrize("blocks", [1, 2, 6, 30, 80])
@pytest.mark.parametrize("kind", DRAWERS)
def test_marks_stay_in_their_column(kind: TrackKind, blocks: int) -> None:
    for drawing in (example(blocks, movement=True), with_gaps(example(blocks, movement=True))):
        for track in drawing.tracks:
            if track.kind == kind:
                svg = draw_track(track, place(blocks + 1)).svg
                for d in paths(svg).values():
                    xs = [float(x) for x in re.findall(r"[ML](-?[\d.]+),", d)]
                    xs += [float(m[1]) + float(m[3]) for m in BOX.finditer(d)]
                    assert min(xs) >= -1.01 and max(xs) <= 158.3


def test_a_score_is_solid_to_its_lower_bound_paler_to_itself_palest_to_the_upper() -> None:
    track = replace(
        score_track("t", 1, 0.5),
        series={"value": (0.75,), "low": (0.7,), "high": (0.85,), "control": (0.6,)},
        baseline=0.5,
    )
    svg = draw_track(track, place(1)).svg
    assert boxes(svg, "hue") == [(0, pytest.approx(158 * 0.4, abs=0.1))]
    assert boxes(svg, "hue mid") == [pytest.approx((158 * 0.4, 158 * 0.5), abs=0.1)]
    assert boxes(svg, "hue pale") == [pytest.approx((158 * 0.5, 158 * 0.7), abs=0.1)]
    assert paths(svg)["tick"].startswith(f"M{158 * 0.2:.1f},")


def test_a_score_below_the_baseline_goes_to_the_left_of_it() -> None:
    track = replace(score_track("t", 2, 0.5), series={"value": (0.4, 0.9)}, baseline=0.5, top=1.0)
    body = draw_track(track, place(2))
    zero = boxes(body.svg, "hue")[0][0]
    assert zero == pytest.approx(158 / 6, abs=0.1)
    assert boxes(body.svg, "below") == [(0, pytest.approx(zero, abs=0.1))]
    assert "below" in [key.label for key in body.keys]


def test_a_score_far_below_the_baseline_is_marked_at_the_edge() -> None:
    track = replace(score_track("t", 2, 0.5), series={"value": (-3.0, 0.9)}, baseline=0.5, top=1.0)
    assert "M-1," in paths(draw_track(track, place(2)).svg)["below"]


def test_a_control_task_outside_the_axis_is_a_sign_at_the_edge_and_not_a_tick() -> None:
    track = replace(
        score_track("t", 2, 0.5),
        series={"value": (0.7, 0.9), "control": (0.2, 0.6)},
        baseline=0.5,
        top=1.0,
    )
    svg = draw_track(track, place(2)).svg
    signs = paths(svg)["tick"]
    assert signs.startswith("M3.5,") and signs.count("L0.5,") == 1
    assert f"M{158 * 0.2:.1f}," in signs
    # It takes no space from the bars.
    assert boxes(svg, "hue")[0][0] == 0


def test_a_control_task_alone_can_be_drawn() -> None:
    track = replace(score_track("t", 2, 0.5), series={"control": (0.7, None)}, baseline=None)
    assert paths(draw_track(track, place(2)).svg)["none"].count("z") == 2


def test_scores_that_equal_the_baseline_are_visible() -> None:
    track = replace(score_track("t", 2, 0.5), series={"value": (0.5, 0.5)}, baseline=0.5, top=0.5)
    assert len(boxes(draw_track(track, place(2)).svg, "hue")) == 2


@pytest.mark.parametrize("kind", DRAWERS)
def test_layers_without_a_value_are_open_circles_and_have_no_bar(kind: TrackKind) -> None:
    full = next(t for t in tracks(9) if t.kind == kind)
    holed = next(t for t in with_gaps(example(9, movement=True)).tracks if t.kind == kind)
    holed = replace(holed, trained=None)
    body = draw_track(holed, place(10))
    assert paths(body.svg)["none"].count("z") == (3 if kind != "skill" else 8)
    assert "not measured" in [key.label for key in body.keys]
    if kind != "skill":
        assert "none" not in paths(draw_track(full, place(10)).svg)


def test_layers_that_were_not_trained_are_grey_and_say_so() -> None:
    skill = next(t for t in tracks(9) if t.kind == "skill")
    svg = draw_track(skill, place(10)).svg
    assert "not trained" in svg and "none" not in paths(svg)
    ghost = BOX.match(paths(svg)["ghost"])
    assert float(ghost[4]) == pytest.approx(place(10).rows.height * 8, abs=0.1)


def test_the_parts_of_a_skill_are_side_by_side_and_add_up() -> None:
    skill = next(t for t in tracks(9) if t.kind == "skill")
    svg = draw_track(skill, place(10)).svg
    mlp, attention, norm = (boxes(svg, part)[-1] for part in ("mlp", "attention", "norm"))
    assert mlp[0] == 0 and mlp[1] == attention[0] and attention[1] == norm[0]
    assert norm[1] == pytest.approx(158)


def test_a_layer_that_is_measured_as_zero_differs_from_one_that_is_not() -> None:
    for track in (movement_track(3), next(t for t in tracks(2) if t.kind == "skill")):
        names = list(track.series)
        zero = dict.fromkeys(names, (0.0, None, 0.5))
        svg = draw_track(replace(track, series=zero, trained=None), place(3)).svg
        assert len(boxes(svg, "hue" if track.kind == "movement" else names[0])) == 2
        assert paths(svg)["none"].count("z") == 1


def test_agreement_has_the_logit_lens_inside() -> None:
    track = next(t for t in tracks(6) if t.kind == "agreement")
    body = draw_track(track, place(7))
    outer, inner = boxes(body.svg, "hue soft-bar"), boxes(body.svg, "lens")
    assert len(outer) == len(inner) == 7
    assert outer[3][1] == pytest.approx(158 * track.series["map"][3], abs=0.1)
    assert inner[3][1] == pytest.approx(158 * track.series["lens"][3], abs=0.1)
    alone = replace(track, series={"map": track.series["map"]})
    assert [key.label for key in draw_track(alone, place(7)).keys] == ["fitted map"]


def test_lines_of_linearity_have_gaps_and_the_second_one_is_dotted() -> None:
    track = next(t for t in tracks(6) if t.kind == "linearity")
    holed = replace(track, series={"last": (0.1, 0.2, None, 0.4, 0.5, 0.6, None)})
    assert paths(draw_track(holed, place(7)).svg)["ray"].count("M") == 2
    assert paths(draw_track(track, place(7)).svg)["ray next"].count("M") == 1


def test_a_negative_r2_is_drawn_and_one_below_the_axis_is_marked() -> None:
    track = next(t for t in tracks(2) if t.kind == "linearity")
    svg = draw_track(replace(track, series={"last": (-50.0, 0.9, None)}), place(3)).svg
    assert paths(svg)["hue"].count("M-1,") == 1
    # A dot would say that the value is at the edge.
    assert paths(svg)["hue"].count("a3,3") == 2
    near = draw_track(replace(track, series={"last": (-0.1, 0.9, None)}), place(3)).svg
    assert "M-1," not in paths(near)["hue"] and paths(near)["hue"].count("a3,3") == 4


def test_fisher_is_a_butterfly_for_two_series_and_one_sided_for_one() -> None:
    track = next(t for t in tracks(6) if t.kind == "fisher")
    svg = draw_track(track, place(7)).svg
    assert all(right == 79 for _, right in boxes(svg, "text"))
    assert all(left == 79 for left, _ in boxes(svg, "hue"))
    alone = draw_track(replace(track, series={"text": track.series["text"]}), place(7))
    assert all(left == 0 for left, _ in boxes(alone.svg, "hue"))
    assert "text" not in paths(alone.svg)


def test_fisher_has_a_square_root_axis() -> None:
    track = next(t for t in tracks(2) if t.kind == "fisher")
    svg = draw_track(replace(track, series={"text": (0.01, 0.25, 1.0)}), place(3)).svg
    assert [right for _, right in boxes(svg, "hue")] == pytest.approx([15.8, 79, 158], abs=0.1)


def test_scores_are_named_once() -> None:
    assert score_track("t", 1, 0.5).kind == SCORES
