"""The drawing as JSON: one entry per layer everywhere, missing tracks with their command."""

from cutaway.report.drawing.values import SERIES, Drawing, LayerWord, Track

TRACKS = (
    Track("property", "tense", "probe", "What each layer knows", "tense",
          series={"value": (0.5, 0.8, None), "control": (0.5, 0.5, 0.5)}, run="abc"),
    Track("fisher", "fisher", "inject", "Where", "share", command="cutaway draw M --tracks=fisher"),
)  # fmt: skip
DRAWING = Drawing(
    "m", 2, {}, "", "It is", (LayerWord(" a", 0.5, False), None, LayerWord(" b", 0.9, True)), TRACKS
)


def test_the_json_has_one_entry_per_layer() -> None:
    plain = DRAWING.plain()
    assert plain["layers"] == 2
    assert plain["words"] == [" a", None, " b"]
    assert plain["tracks"] == {"tense": [0.5, 0.8, None], "tense/control": [0.5, 0.5, 0.5]}


def test_a_missing_track_names_the_command_that_measures_it() -> None:
    plain = DRAWING.plain()
    assert plain["missing"] == {"fisher": "cutaway draw M --tracks=fisher"}
    assert plain["runs"] == {"tense": "abc"}


def test_a_track_without_values_is_not_measured() -> None:
    assert [track.measured for track in TRACKS] == [True, False]
    assert not Track("skill", "s", "graft", "", "", series={"mlp": (None, None)}).measured
    assert TRACKS[1].main == ()


def test_every_kind_has_a_main_series() -> None:
    assert all(names and len(set(names)) == len(names) for names in SERIES.values())
