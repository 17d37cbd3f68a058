"""The spec of `draw`: tracks by name, in the order of the columns."""

import pytest

from cutaway.core.errors import BadSpec
from cutaway.core.spec import build_spec
from cutaway.studies.draw.spec import DATA, TRACKS, DrawSpec


def test_tracks_are_in_the_order_of_the_columns() -> None:
    assert build_spec(DrawSpec, {"model": "m", "tracks": "fisher,property"}).tracks == (
        "property", "fisher",
    )  # fmt: skip
    assert build_spec(DrawSpec, {"model": "m"}).tracks == TRACKS


def test_an_unknown_track_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(BadSpec, match="Did you mean 'linearity'"):
        build_spec(DrawSpec, {"model": "m", "tracks": "linerity"})


def test_the_default_sets_need_no_network() -> None:
    assert all(name.startswith("gen:") for name in DATA)
