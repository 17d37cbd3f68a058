"""The rows of graft: coordinates, reliability bins, intervals over seeds."""

import numpy as np
import pytest

from cutaway.measure.calibration import reliability
from cutaway.measure.intervals import corrected_t
from cutaway.measure.shared_rows import BlockScores
from cutaway.methods.graft.rows import (
    GRAFT_SCHEMA,
    GraftCoordinates,
    read_block_scores,
    with_seed_intervals,
)
from cutaway.recipe.result import table

HERE = GraftCoordinates("base", "tuned", "task")


def test_the_columns_are_those_of_the_contract() -> None:
    names = list(GRAFT_SCHEMA)
    assert names[:6] == ["base", "tuned", "task", "kind", "sparsity", "seed"]
    assert names[-4:] == ["metric", "value", "low", "high"]
    assert table([HERE.row("learned", "accuracy", 0.5)], GRAFT_SCHEMA).columns == names


def test_bins_have_the_counts_of_the_diagram_and_no_empty_ones() -> None:
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [0.45, 0.55]])
    diagram = reliability(probabilities, np.array([0, 0, 1]))
    rows = HERE.bins("base", diagram, sparsity=0.0)
    counts = {row["bin"]: row["value"] for row in rows if row["metric"] == "bin_count"}
    assert sum(counts.values()) == 3
    assert len(rows) == 3 * len(counts)
    assert all(count > 0 for count in counts.values())


@pytest.mark.parametrize(("metric", "low_end"), [("accuracy", True), ("lm_loss", False)])
def test_the_interval_over_seeds_is_the_t_interval_within_the_metrics_range(
    metric: str, low_end: bool
) -> None:
    values = [0.01, 0.2, 0.05]
    rows = [HERE.row("learned", metric, v, sparsity=0.1, seed=i) for i, v in enumerate(values)]
    expected = corrected_t(values, n_train=1, n_test=0)
    for row in with_seed_intervals(rows, 50.0):
        assert row["low"] == (0.0 if low_end else expected.low)
        assert row["high"] == expected.high
    assert expected.low < 0


def test_a_cell_with_one_seed_keeps_its_own_interval() -> None:
    rows = [HERE.row("learned", "accuracy", 0.5, sparsity=share, seed=0) for share in (0.1, 0.2)]
    assert with_seed_intervals(rows, 50.0) == rows


def test_blocks_are_read_back_as_the_mean_over_seeds() -> None:
    cell = {"sparsity": 0.1, "data": "x"}
    rows = []
    for seed, value in ((0, 0.6), (1, 0.8)):
        scores = BlockScores((value - 0.1, value + 0.1), (value,))
        rows += [HERE.row("learned", "accuracy", value, seed=seed, **cell)]
        rows += HERE.blocks("learned", "accuracy", scores, seed=seed, **cell)
    found = read_block_scores(with_seed_intervals(rows, 50.0), "accuracy", 50.0)
    assert found.blocks == pytest.approx((0.6, 0.8))
    assert (found.values, found.worth) == ((0.6, 0.8), 50.0)
    made = with_seed_intervals(rows, 50.0)
    assert not any("low" in row for row in made if row.get("bin") is not None)
    assert {row["low"] < 0.7 < row["high"] for row in made if row.get("bin") is None} == {True}


def test_rows_without_blocks_or_scores_have_none() -> None:
    row = HERE.row("learned", "accuracy", None, seed=0)
    for rows in ([row], []):
        found = read_block_scores(rows, "accuracy", 50.0)
        assert found.blocks == () and np.isnan(found.mean)
