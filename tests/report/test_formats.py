import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.report import formats


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.78123, "0.781"),
        (0.0456, "0.0456"),
        (1.0, "1.000"),
        (0.99999, "1.000"),
        (0.0, "0"),
        (-0.5, "-0.500"),
        (3.14159, "3.14"),
        (12.345, "12.3"),
        (1234.5, "1,230"),
        (2000.0, "2,000"),
        (0.0000123, "1.23e-05"),
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
    ],
)
def test_numbers_keep_three_significant_digits(value, text) -> None:
    assert formats.number(value) == text


@given(st.floats(min_value=1e-9, max_value=1e12))
def test_a_shown_number_is_within_half_a_percent_of_the_true_one(value: float) -> None:
    assert float(formats.number(value).replace(",", "")) == pytest.approx(value, rel=0.0051)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (950, "950"),
        (9500, "9,500"),
        (15_000_000, "15 M"),
        (134_515_008, "135 M"),
        (1_240_000_000, "1.24 B"),
        (999_600_000, "1 B"),
        (12_345, "12.3 k"),
    ],
)
def test_counts_are_short(value, text) -> None:
    assert formats.count(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.42, "0.420 s"),
        (12.4, "12 s"),
        (59.9, "1 min 0 s"),
        (185, "3 min 5 s"),
        (7800, "2 h 10 min"),
    ],
)
def test_durations_read_like_a_clock(seconds, text) -> None:
    assert formats.duration(seconds) == text


def test_an_interval_without_ends_is_only_its_mean() -> None:
    assert formats.interval(0.5, None, None) == "0.500"
    assert formats.interval(0.5, 0.4, 0.6) == "0.500 [0.400, 0.600]"


@given(st.text(max_size=200))
def test_text_from_data_never_keeps_a_tag_or_a_line_break(text: str) -> None:
    shown = formats.figure_label(text)
    assert "<" not in shown and "\n" not in shown


@given(st.text(max_size=200), st.integers(min_value=4, max_value=80))
def test_cut_text_is_never_longer_than_asked(text: str, limit: int) -> None:
    assert len(formats.shorten(text, limit)) <= limit


def test_layers_sort_by_number_then_mixes_then_no_layer() -> None:
    mixed = ["-", "10", "mean:all", "2", "concat:8,9", "0"]
    assert sorted(mixed, key=formats.layer_order) == ["0", "2", "10", "concat:8,9", "mean:all", "-"]


@pytest.mark.parametrize(
    ("value", "text"), [(12, "12 B"), (12_400, "12.4 kB"), (538e6, "538 MB"), (2.1e9, "2.1 GB")]
)
def test_sizes_have_units(value, text) -> None:
    assert formats.file_size(value) == text
    assert formats.megabytes(2048.0) == "2.00 GB"


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.083, "rises by 0.08 nats"), (-0.083, "falls by 0.08 nats"),
     (-0.001, "changes by less than 0.01 nats")],
)  # fmt: skip
def test_a_change_has_a_direction_and_no_sign(value: float, words: str) -> None:
    assert formats.change(value, "nats") == words
