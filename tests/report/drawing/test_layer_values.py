from dataclasses import replace

import pytest

from cutaway.report.drawing import layer_values
from cutaway.report.drawing.values import LayerWord
from tests.report.drawing.examples import all_examples, example, score_track, unmeasured


def test_a_layer_of_scores_reads_value_interval_and_control() -> None:
    track = replace(
        score_track("tense", 2, 0.5),
        series={"value": (0.9, None), "low": (0.85, None), "high": (0.95, None), "control": (0.6,)},
    )
    assert layer_values.layer_text(track, 0) == "0.900 [0.850, 0.950], control task 0.600"
    assert layer_values.layer_text(track, 1) == "not measured"


def test_shares_read_as_percentages() -> None:
    by_name = {track.name: track for track in example(6).tracks}
    assert layer_values.layer_text(by_name["skill"], 6) == "MLP 35 %, attention 10 %, norm 5 %"
    assert layer_values.layer_text(by_name["skill"], 0) == "not trained"
    assert (
        layer_values.layer_text(by_name["agreement"], 6)
        == "fitted map 100 % [99 %, 100 %], logit lens 100 %"
    )


def test_there_is_no_map_from_the_last_layer() -> None:
    linearity = next(track for track in example(6).tracks if track.kind == "linearity")
    assert layer_values.layer_text(linearity, 6) == "none from the last layer"


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf")])
def test_values_that_are_no_numbers_are_not_measured(bad: float | None) -> None:
    track = replace(score_track("tense", 1, 0.5), series={"value": (bad,)})
    assert layer_values.value_at(track, "value", 0) is None
    assert layer_values.value_at(track, "value", 7) is None
    assert layer_values.finite(track, "value", "low") == []


@pytest.mark.parametrize("name", all_examples())
def test_a_summary_has_a_line_per_measured_track(name: str) -> None:
    drawing = all_examples()[name]
    lines = layer_values.layer_summary(drawing, 0).splitlines()
    measured = [track for track in drawing.tracks if track.measured]
    assert lines[0] == "Layer 0 (embeddings)"
    assert len(lines) == 1 + len(measured) + bool(drawing.words)


def test_a_word_has_its_probability() -> None:
    drawing = replace(example(1), words=(LayerWord(" a", 0.25, False), None))
    assert layer_values.word_text(drawing, 0) == "a 0.250"
    assert layer_values.word_text(drawing, 1) == ""
    assert "word" not in layer_values.layer_summary(unmeasured(drawing), 1)
