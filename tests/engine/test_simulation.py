"""What the page on clusters says of 10,000 pieces on 64 workers is what the desk does."""

import pytest
from bench.engine_simulation import PIECES, simulate


@pytest.mark.parametrize(
    ("spread", "deaths", "most", "failed"),
    [(0.0, 0.0, 1.006, 0), (0.6, 0.0, 1.011, 0), (0.6, 0.01, 1.04, 0), (0.6, 0.2, 1.56, 74)],
    ids=["equal", "uneven", "one in a hundred dies", "one in five dies"],
)
def test_every_piece_comes_back_once_and_little_time_is_lost(spread, deaths, most, failed):
    found = simulate(PIECES, spread, deaths)
    assert (found["back"], found["failed"]) == (PIECES, failed)
    assert 1 <= found["hours"] / found["ideal"] <= most
