"""Rows of shortcut runs: every metric equals its definition."""

import numpy as np
import pytest
import torch

from cutaway.measure.intervals import Interval
from cutaway.methods.shortcut.maths.lens import final_distribution, layer_predictions
from cutaway.methods.shortcut.rows import (
    SCHEMA,
    ShortcutCoordinates,
    in_display_order,
    prediction_rows,
    r2_rows,
    shortcut_outcome,
)

COORDINATES = ShortcutCoordinates("m", "t", "f")


@pytest.fixture(scope="module")
def predicted():
    rng = torch.Generator().manual_seed(0)
    logits, full = (3 * torch.randn(40, 30, generator=rng) for _ in range(2))
    tokens = torch.randint(30, (40,), generator=rng)
    tokens[::8] = -1
    return logits, full, tokens, layer_predictions(logits, final_distribution(full), tokens)


def test_every_metric_of_a_layer_is_a_row_with_its_interval(predicted) -> None:
    logits, full, tokens, one = predicted
    rows = {row["metric"]: row for row in prediction_rows(COORDINATES, "mat", 2, 6, one)}
    guess, top = logits.argmax(-1), full.argsort(dim=-1, descending=True)
    for k in (1, 5, 10):
        among = (top[:, :k] == guess[:, None]).any(-1).double().mean()
        assert rows[f"precision@{k}"]["value"] == pytest.approx(float(among))
    log_p, log_q = full.log_softmax(-1), logits.log_softmax(-1)
    kl = (log_p.exp() * (log_p - log_q)).sum(-1).mean()
    assert rows["kl"]["value"] == pytest.approx(float(kl), rel=1e-4)
    known = tokens >= 0
    loss = -log_q[known].gather(1, tokens[known][:, None]).mean()
    assert rows["perplexity"]["value"] == pytest.approx(float(loss.exp()), rel=1e-4)
    for row in rows.values():
        assert row["low"] <= row["value"] <= row["high"]
        assert (row["source"], row["target"], row["layer"], row["kind"]) == (2, 6, 2, "mat")


def test_r2_has_no_interval(predicted) -> None:
    [row] = r2_rows(COORDINATES, {("id", (1, 4)): -0.5})
    assert row == {
        "model": "m", "text": "t", "fitted_on": "f", "kind": "id", "metric": "r2",
        "source": 1, "target": 4, "layer": 1, "value": -0.5,
    }  # fmt: skip


def test_precision_at_1_comes_first_then_by_layer() -> None:
    names = ("kl", "precision@10", "precision@1")
    rows = [{"metric": name, "layer": layer} for layer in (1, 0) for name in names]
    ordered = [(row["metric"], row["layer"]) for row in in_display_order(rows)]
    assert ordered[:2] == [("precision@1", 0), ("precision@1", 1)]
    assert ordered[2:4] == [("precision@10", 0), ("precision@10", 1)]


def test_an_outcome_has_every_column_and_the_facts(other_sample) -> None:
    value = Interval(0.5, 0.4, np.nan, 0.95, 9)
    row = COORDINATES.row("mat", "kl", value, layer=1)
    outcome = shortcut_outcome(
        "eval", other_sample, summary={"a": 1}, baselines={}, rows=[row],
        parts={"measured": np.array([1, 0])},
    )  # fmt: skip
    assert outcome.rows.columns == list(SCHEMA)
    assert outcome.rows["high"].to_list() == [None]
    assert outcome.summary == {"verb": "eval", "a": 1}
    assert outcome.data["rows"] == len(other_sample.texts)
    assert outcome.splits is not None
    assert outcome.splits["row"].to_list() == [1, 1, 0, 0]
    marks = [*other_sample.full.marks[1], *other_sample.full.marks[0]]
    assert outcome.splits["position"].to_list() == marks
