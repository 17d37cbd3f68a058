"""Values of tracks: by layer, None where nothing was measured, shares that add up."""

import pytest

from cutaway.studies.draw.tracks import by_layer, movement_track, skill_track, track_name


def test_layers_without_a_value_are_none() -> None:
    assert by_layer({1: 0.5, 3: 0.7}, 3) == (None, 0.5, None, 0.7)


@pytest.mark.parametrize(
    ("data", "name"),
    [("gen:tense", "tense"), ("gen:tense?n=40,seed=1", "tense"), ("/a/b/mood.jsonl", "mood.jsonl"),
     ("sst2", "sst2")],
)  # fmt: skip
def test_a_data_set_has_a_short_name(data, name) -> None:
    assert track_name(data) == name


def test_the_shares_of_a_skill_add_up_to_one_and_untrained_blocks_are_not_zero() -> None:
    counts = {
        (1, "mlp"): 0.0,
        (2, "mlp"): 30.0,
        (3, "attn"): 50.0,
        (3, "norm1"): 10.0,
        (3, "other"): 10.0,
    }
    track = skill_track(counts, 3, name="sst2", trained=[2, 3])
    total = sum(v for values in track.series.values() for v in values if v is not None)
    assert total == pytest.approx(1)
    assert track.trained == (False, False, True, True)
    assert track.series["mlp"] == (None, None, 0.3, 0.0)
    assert track.series["norm"] == (None, None, 0.0, 0.1)


def test_without_knowing_what_was_trained_every_block_has_a_share() -> None:
    track = skill_track({(1, "mlp"): 2.0}, 2, name="s", trained=None)
    assert track.series["mlp"] == (0.0, 1.0, 0.0)
    assert track.trained is None


def test_movement_is_by_layer() -> None:
    assert movement_track({0: 0.0, 1: 0.1, 3: 0.2}, 2, name="t", command="").main == (
        0.0,
        0.1,
        None,
    )
