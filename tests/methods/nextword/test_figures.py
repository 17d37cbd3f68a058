"""Figures of nextword: each draws what its rows hold, or names the command that measures it."""

import json

import pytest

from cutaway.core.errors import Missing
from cutaway.methods.nextword.figures import FIGURES
from tests.methods.nextword.run_rows import ALL, CURVES, DETAILS, frame
from tests.report.fake_runs import FakeRecord


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_data_a_title_and_a_caption(name: str, record) -> None:
    figure = FIGURES[name](ALL, record)
    assert figure.data and figure.layout.title.text
    assert len(figure.layout.meta["caption"]) > 60
    assert "<b>good" not in figure.to_json()
    json.loads(figure.to_json())


@pytest.mark.parametrize("name", FIGURES)
def test_a_run_without_such_rows_says_how_to_get_them(name: str, tmp_path) -> None:
    empty = FakeRecord(ALL.clear(), method="nextword", path=tmp_path)
    with pytest.raises(Missing, match=r"cutaway (nextword|quad)"):
        FIGURES[name](ALL.clear(), empty)


def test_bars_stand_beside_each_other_for_each_prompt_with_whiskers(record) -> None:
    bars = [t for t in FIGURES["features"](ALL, record).data if t.type == "bar"]
    assert [list(b.y) for b in bars] == [
        [0.85, 0.8, 0.7, 0.79, 0.5, 0.55], [0.86, 0.84, 0.78, 0.83, 0.7, 0.72]
    ]  # fmt: skip
    assert bars[0].error_y.array[0] == pytest.approx(0.02)


def test_tokens_without_effect_are_not_drawn(record) -> None:
    drawn = FIGURES["tokens"](ALL, record)
    assert [list(t.y) for t in drawn.data] == [["␣bad #0"], ["␣good #1"]]


def test_the_squares_of_the_confusion_say_how_many_texts(record) -> None:
    (squares,) = FIGURES["confusion"](ALL, record).data
    assert squares.texttemplate == "%{text:,}"
    assert [list(map(int, line)) for line in squares.text] == [
        [int(n) for (n,) in line] for line in squares.customdata
    ]


def test_the_top_tokens_are_those_of_the_first_measured_kind(record) -> None:
    title = FIGURES["tokens"](ALL, record).layout.title.text
    assert "(p, prompt" in title


def test_each_prompt_pair_is_a_line_from_without_to_with(record) -> None:
    lines = {t.name: list(t.y) for t in FIGURES["prompts"](ALL, record).data}
    assert lines["Phi p"] == [0.8, 0.84] and lines["f"] == [0.85, 0.86]


def test_the_reliability_diagram_has_the_expected_calibration_error(record) -> None:
    diagonal, curve = FIGURES["calibration"](ALL, record).data
    assert list(diagonal.x) == list(diagonal.y) == [0, 1]
    assert list(curve.x) == [0.6, 0.9] and "ECE 0.1" in curve.name


def test_the_confusion_matrix_shares_sum_to_1_in_each_row(record) -> None:
    (squares,) = FIGURES["confusion"](ALL, record).data
    assert [sum(line) for line in squares.z] == pytest.approx([1.0, 1.0])
    assert list(squares.z[0]) == pytest.approx([0.9, 0.1])


def test_the_loss_curves_have_a_line_per_metric(record) -> None:
    curves = FIGURES["losses"](frame(CURVES), record).data
    assert [c.name for c in curves] == ["Quad loss, held out", "cross-entropy, held out"]
    assert list(curves[0].x) == [0, 50, 100] and list(curves[0].y) == [3.0, 2.5, 2.0]


def test_no_figure_needs_details_of_another(tmp_path) -> None:
    """Each kind of detail can be missing without breaking the other figures."""
    for missing in ("tokens", "confusion", "calibration"):
        left = [d for d in DETAILS if d["figure"] != missing]
        (tmp_path / "nextword.json").write_text(json.dumps(left))
        run = FakeRecord(ALL, method="nextword", path=tmp_path)
        with pytest.raises(Missing):
            FIGURES[missing](ALL, run)
        for name in {"tokens", "confusion", "calibration"} - {missing}:
            assert FIGURES[name](ALL, run).data
