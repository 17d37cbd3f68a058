"""Every sentence of the drawing follows from its numbers by a rule."""

from dataclasses import replace

import numpy as np
import pytest

from cutaway.report.drawing.sentences import (
    best_layer,
    jump_layers,
    known_from,
    observations,
    said_from,
    title_sentence,
    track_sentence,
    with_sentences,
)
from cutaway.report.drawing.values import Drawing, Track


def probe(values, low=None, *, name="tense", baseline=0.5, chosen=None) -> Track:
    low = low or tuple(v - 0.1 for v in values)
    high = tuple(min(1.0, v + 0.1) for v in values)
    series = {"value": tuple(values), "low": tuple(low), "high": high}
    return Track("property", name, "probe", "What each layer knows", name, series=series,
                 baseline=baseline, chosen=chosen)  # fmt: skip


def track(kind, name="x", **series) -> Track:
    return Track(kind, name, "shortcut", "Q", "label", series=series)


def drawing(*tracks, blocks=None) -> Drawing:
    count = blocks or len(tracks[0].main) - 1
    return Drawing("m", count, {}, "", "It is", (None,) * (count + 1), tracks)


def test_known_from_is_the_first_layer_inside_the_interval_of_the_chosen_one() -> None:
    found = probe((0.5, 0.6, 0.85, 0.9, 0.95), chosen=4)
    assert known_from(found) == 2  # 0.85 is the lower end at layer 4
    assert "Known from layer 2 on: 0.950 at layer 4" in track_sentence(found)


def test_a_score_that_is_not_shown_to_be_above_the_baseline_is_not_known() -> None:
    found = probe((0.5, 0.55, 0.58), chosen=2)
    assert known_from(found) is None
    assert track_sentence(found).startswith("Not shown to be known")


def test_without_a_choice_on_validation_rows_the_best_layer_is_the_first_with_the_best_score():
    assert best_layer(probe((0.5, 0.9, 0.9))) == 1
    assert best_layer(track("property")) is None


@pytest.mark.parametrize(
    ("values", "layer"),
    [
        ((0.1, 0.5, 0.7, 1.0), 1),
        ((0.6, 0.4, 0.7, 1.0), 2),  # what falls below a half again does not count
        ((0.1, 0.2, 0.3, 1.0), 3),
        ((0.1, None, 0.6, 1.0), 2),
        ((), None),
    ],
)
def test_said_from_is_the_layer_from_which_half_of_the_words_agree(values, layer) -> None:
    assert said_from(values) == layer


def test_the_last_layer_agrees_with_itself_and_is_no_finding() -> None:
    text = track_sentence(track("agreement", map=(0.1, 0.2, 1.0), lens=(0.0, 0.1, 1.0)))
    assert text.count("only in the last layer") == 2
    assert "Words ready last" in title_sentence(drawing(track("agreement", map=(0.1, 0.2, 1.0))))


def test_the_step_from_the_embeddings_is_not_the_least_linear_one() -> None:
    text = track_sentence(
        track("linearity", last=(0.1, 0.4, 0.6, None), next=(0.1, 0.8, 0.9, None))
    )
    assert "The least linear step: 1 to 2 (r2 0.800)" in text


def test_a_skill_is_compared_with_the_blocks_that_were_trained() -> None:
    shares = {"mlp": (None, None, 0.2, 0.5), "attention": (None, None, 0.1, 0.2)}
    some = replace(track("skill", **shares), trained=(False, False, True, True))
    assert track_sentence(some) == (
        "Of the 2 trained blocks, block 3 holds 70% of its weights, mostly MLP."
    )
    every = replace(some, trained=None)
    assert track_sentence(every).startswith("Block 3 holds 70%")


def test_weights_that_did_not_move_are_counted() -> None:
    assert track_sentence(track("movement", change=(0.0, 0.0, 0.02))) == (
        "Weights moved most in block 2: by 2.0% of their norm. 2 of 3 did not move."
    )
    assert track_sentence(track("movement", change=(0.0, 0.0))) == "No weight has moved."


def test_the_fisher_sentence_names_the_embeddings_and_the_first_block() -> None:
    text = track_sentence(track("fisher", text=(0.6, 0.1, 0.3)))
    assert text == (
        "Plain text depends most on the embeddings (60% of the Fisher information), then on "
        "block 2 (30%)."
    )


def test_an_unmeasured_track_has_no_sentence() -> None:
    assert track_sentence(track("fisher")) == ""
    assert with_sentences(drawing(track("fisher"), blocks=3)).verdict == ()


def test_the_title_counts_what_is_known() -> None:
    high, low = probe((0.5, 0.9, 0.9), chosen=1), probe((0.5, 0.5, 0.5), name="topic", chosen=1)
    assert title_sentence(drawing(high)) == "Known by layer 1 of 2."
    assert title_sentence(drawing(high, low)).startswith("1 of 2 properties known by layer 1")
    three = [replace(high, name=str(i)) for i in range(3)]
    assert title_sentence(drawing(*three)).startswith("All 3 properties known by layer 1")


def steps(jump_at: int | None, seed: int, layers: int = 30) -> tuple[float, ...]:
    rng = np.random.default_rng(seed)
    values = np.cumsum(rng.normal(0.01, 0.004, layers + 1))
    if jump_at is not None:
        values[jump_at:] += 0.3
    return tuple(float(v) for v in values)


def test_a_place_where_three_tracks_jump_is_observed_with_its_numbers() -> None:
    tracks = [probe(steps(12 + i % 2, i), name=f"t{i}") for i in range(3)]
    (found,) = observations(drawing(*tracks))
    assert (found.first, found.last) == (12, 13)
    assert found.sentence.startswith("At layers 12 to 13, 3 tracks jump: t0 ")


def test_two_jumping_tracks_or_jumps_far_apart_are_no_observation() -> None:
    two = [probe(steps(12 if i < 2 else None, i), name=f"t{i}") for i in range(4)]
    apart = [probe(steps(6 + 6 * i, i), name=f"t{i}") for i in range(3)]
    assert observations(drawing(*two)) == observations(drawing(*apart)) == []


def test_smooth_tracks_give_an_observation_in_at_most_one_of_twenty_drawings() -> None:
    found = 0
    for seed in range(200):
        tracks = [probe(steps(None, 10 * seed + i), name=f"t{i}") for i in range(7)]
        found += bool(observations(drawing(*tracks)))
    assert found <= 10


@pytest.mark.parametrize("place", [1, 30])
def test_the_first_step_and_the_last_layer_are_left_out(place) -> None:
    assert jump_layers(probe(steps(place, 0))) == set()


def test_blocks_that_were_not_trained_make_no_jump() -> None:
    values = (0.0,) * 20 + (0.4,) + (0.1,) * 10
    trained = tuple(i >= 20 for i in range(31))
    found = replace(track("fisher", text=values), trained=trained)
    assert jump_layers(found) == set()


def test_how_far_r2_is_below_zero_is_no_jump() -> None:
    values = (-15.0, -9.0, -1.2, *(0.03 + 0.02 * i for i in range(28)))
    assert jump_layers(track("linearity", last=values)) == set()


def test_the_reason_of_a_track_that_could_not_be_measured_is_kept() -> None:
    failed = replace(track("fisher"), sentence="No room.")
    drawn = with_sentences(drawing(failed, blocks=3))
    assert drawn.tracks[0].sentence == "No room."
    assert drawn.verdict == ()


def test_few_layers_and_constant_tracks_have_no_jumps() -> None:
    assert jump_layers(probe((0.5, 0.5, 0.9, 0.9))) == set()
    assert jump_layers(probe((0.5,) * 31)) == set()
