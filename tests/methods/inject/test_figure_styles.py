"""Styles of trainings: distinct, stable, and readable without colours."""

import polars as pl
import pytest

from cutaway.methods.inject.figure_styles import (
    COLOURS,
    HATCHES,
    error_bars,
    lora_rank,
    marker_symbol,
    mix_with_grey,
    regulariser_colour,
    training_styles,
)
from cutaway.methods.inject.rows import InjectCoordinates, inject_frame
from cutaway.methods.inject.spec import REGULARISERS
from cutaway.report import theme


def rows_of(*cells: tuple[str, float | None]) -> pl.DataFrame:
    return inject_frame(
        InjectCoordinates("m", "arithmetic", name, strength, 0).row("after", "docs", "lm_loss", 1.0)
        for name, strength in cells
    )


def test_every_regulariser_has_its_own_colour_with_and_without_adapters() -> None:
    assert set(COLOURS) == set(REGULARISERS)
    assert len(set(COLOURS.values())) == len(COLOURS)
    for name, colour in COLOURS.items():
        assert regulariser_colour(name) == regulariser_colour(f"{name}+lora8") == colour
    assert regulariser_colour("another") not in COLOURS.values()


@pytest.mark.parametrize(("label", "rank"), [("ewc", 0), ("ewc+lora8", 8), ("none+lora16", 16)])
def test_the_rank_is_read_from_the_label_and_adapters_are_hollow(label, rank) -> None:
    assert lora_rank(label) == rank
    assert marker_symbol(label, "circle") == ("circle-open" if rank else "circle")


def test_the_strongest_training_has_the_full_colour_and_labels_name_strengths() -> None:
    styles = training_styles(rows_of(("ewc", 0.1), ("ewc", 10.0), ("none", 0.0), ("-", None)))
    assert set(styles) == {("ewc", 0.1), ("ewc", 10.0), ("none", 0.0)}
    assert styles["ewc", 10.0].colour.lower() == COLOURS["ewc"].lower()
    assert styles["ewc", 0.1].colour != styles["ewc", 10.0].colour
    assert [styles[key].name for key in (("none", 0.0), ("ewc", 0.1))] == ["none", "ewc 0.1"]


def test_each_rank_has_another_pattern_and_trained_weights_have_none() -> None:
    ranks = range(1, len(HATCHES) + 1)
    styles = training_styles(rows_of(("ewc", 1.0), *((f"ewc+lora{r}", 1.0) for r in ranks)))
    assert styles["ewc", 1.0].hatch == ""
    assert [styles[f"ewc+lora{r}", 1.0].hatch for r in ranks] == list(HATCHES)


def test_mixing_with_grey_goes_from_grey_to_the_colour() -> None:
    assert mix_with_grey("#ff0000", 1.0) == "#ff0000"
    assert mix_with_grey("#ff0000", 0.0) == theme.NEUTRAL.lower()
    assert mix_with_grey("#000000", 0.5) == "#" + "".join(
        f"{round(int(theme.NEUTRAL[i : i + 2], 16) / 2):02x}" for i in (1, 3, 5)
    )


@pytest.mark.parametrize("name", ["value", "loss"])
def test_error_bars_reach_from_low_to_high_and_are_0_without_an_interval(name) -> None:
    low, high = ("low", "high") if name == "value" else ("loss_low", "loss_high")
    cells = pl.DataFrame({name: [1.0, 2.0], low: [0.5, None], high: [3.0, None]})
    bars = error_bars(cells, name)
    assert bars["array"] == [2.0, 0.0]
    assert bars["arrayminus"] == [0.5, 0.0]
