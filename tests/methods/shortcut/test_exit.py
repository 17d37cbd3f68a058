"""`shortcut exit`: curves, savings, and calibrations whose guarantee holds."""

import numpy as np
import polars as pl
import pytest

from cutaway.core.errors import UnknownName
from cutaway.measure.intervals import Interval
from cutaway.methods.shortcut import api as shortcut
from cutaway.methods.shortcut.exit import calibrations, layers_saved, tried_exit
from cutaway.methods.shortcut.maths.exit_simulation import ExitPoint, LayerConfidences
from cutaway.methods.shortcut.spec import ExitSpec
from tests.methods.shortcut.toy import TEXTS


def test_exit_curves_end_where_the_paper_says(options, fitted, maps_file) -> None:
    result = shortcut.exit(**options, text=TEXTS, agreement=0.8, shortcut=maps_file)
    layers = result.rows.filter(pl.col("metric") == "layers")
    assert set(layers.filter(pl.col("lambda") == 1.112)["value"]) == {3.0}
    assert set(layers.filter(pl.col("lambda") == -1.112)["value"]) == {1.0}
    right = result.rows.filter((pl.col("metric") == "precision@1") & (pl.col("lambda") == 1.112))
    assert set(right["value"]) == {1.0}
    assert result.summary["calibrated"][0]["agreement"] >= 0.8
    timing = result.summary["timing"]
    assert timing["plain_ms"] == pytest.approx(3 * timing["block_ms"] + timing["look_ms"])
    assert 0 < timing["run_layers"] <= 3
    assert min(timing["run_plain_ms"], timing["run_exit_ms"]) > 0
    fixed = result.rows.filter(pl.col("confidence") == "fixed")
    assert fixed.filter(pl.col("layer") == 3)["value"].to_list() == [1.0, 1.0]


def test_the_best_saving_is_never_below_what_a_calibration_guarantees(
    options, fitted, maps_file
) -> None:
    summary = shortcut.exit(**options, text=TEXTS, agreement=0.95, shortcut=maps_file).summary
    for one in summary["calibrated"]:
        assert summary["saved_at_95"][f"{one['kind']}/{one['confidence']}"] >= one["saved"]


def test_an_unknown_confidence_is_refused(options, fitted, maps_file) -> None:
    with pytest.raises(UnknownName, match="confidence"):
        shortcut.exit(**options, text=TEXTS, shortcut=maps_file, confidence="gapp")


def test_masked_models_have_curves_but_no_timing(folder, tiny_lm) -> None:
    options = {"model": tiny_lm("bert"), "runs": str(folder / "runs"), "quiet": True}
    file = str(folder / "masked.safetensors")
    shortcut.fit(**options, text=TEXTS, layers="to-final", out=file)
    result = shortcut.exit(**options, text=TEXTS, shortcut=file)
    assert result.summary["timing"] == {}
    assert not result.rows.filter(pl.col("metric") == "layers").is_empty()


def test_the_guarantee_holds_for_whichever_calibrated_threshold_is_chosen() -> None:
    # Twenty kinds of exit that all just miss the agreement: choosing the best of them is a trap.
    spec = ExitSpec(model="-", shortcut="-", agreement=0.9, risk=0.1)
    rng, broken = np.random.default_rng(0), 0
    for _ in range(100):
        confidences = {}
        for kind in range(20):
            correct = np.stack([rng.random(300) < 0.89, np.ones(300, bool)])
            values = np.stack([np.full(300, 0.9), np.ones(300)])
            positions = np.zeros(300, np.int64)
            confidences[str(kind), "gap"] = LayerConfidences(values, correct, positions, 10.0)
        # A loose threshold lets all tokens exit at layer 1, where the true agreement is 89 %.
        broken += calibrations(confidences, spec)[0][2].layers.mean < 2
    # At most a tenth may break; 19 or more of a hundred have a probability below 1 %.
    assert broken < 19


def test_a_setting_is_measured_on_texts_that_did_not_choose_it() -> None:
    # Five kinds agree in 90 of 100 tokens: on half of them one reaches 95 %, by chance.
    rng, texts = np.random.default_rng(0), np.arange(80)
    agreements, covers = [], 0
    for _ in range(40):
        confidences = {}
        for kind in range(5):
            correct = np.stack([rng.random(80) < 0.9, np.ones(80, bool)])
            values = np.stack([np.full(80, 0.9), np.ones(80)])
            positions = np.zeros(80, np.int64)
            confidences[str(kind), "gap"] = LayerConfidences(values, correct, positions, 10.0)
        tried = tried_exit(confidences, texts)
        assert tried is not None
        if tried.saved.mean == 0.5:
            agreements.append(tried.agreement.mean)
            covers += tried.agreement.low <= 0.9 <= tried.agreement.high
    assert len(agreements) > 20
    assert np.mean(agreements) == pytest.approx(0.9, abs=0.02)
    assert covers >= 0.88 * len(agreements)
    assert tried_exit(confidences, np.zeros(80, dtype=int)) is None


def test_layers_saved_counts_only_points_that_reach_the_agreement() -> None:
    points = [
        ExitPoint(
            setting, Interval(layers, layers, layers, 0.95, 9), Interval(share, 0, 1, 0.95, 9)
        )
        for setting, layers, share in ((0.1, 2.0, 0.6), (0.5, 5.0, 0.9), (0.9, 8.0, 0.96))
    ]
    assert layers_saved(points, 10).mean == pytest.approx(0.2)
    assert layers_saved(points, 10, agreement=0.9).mean == pytest.approx(0.5)
    assert layers_saved(points, 10, agreement=0.99) == Interval(0.0, 0.0, 0.0, 0.95, 9)
