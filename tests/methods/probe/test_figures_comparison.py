"""The figures of probe that compare classifiers, training sizes and model sizes."""

import math

import polars as pl
import pytest

from cutaway.core.errors import Missing
from cutaway.methods.probe.figures_comparison import classifiers, learning_curve, model_sizes
from cutaway.report import theme
from tests.report.fake_runs import SIZES, FakeRecord, probe_rows

MODELS = [{"name": name, "parameters": size} for name, size in SIZES.items()]


def means(rows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    return rows.filter(pl.col("kind") == "probe").group_by(by).agg(pl.col("value").mean())


def test_each_classifier_is_at_its_best_layer_and_pooler() -> None:
    rows = probe_rows(pools=("last", "mean"), classifiers=("logistic", "lda", "nb"))
    dots = next(t for t in classifiers(rows, FakeRecord(rows)).data if t.name == "probe")
    best = means(rows, ["classifier", "layers", "pool"]).group_by("classifier").agg(
        pl.all().sort_by("value").last()
    )  # fmt: skip
    expected = {r["classifier"]: r for r in best.to_dicts()}
    assert sorted(dots.y) == ["lda", "logistic", "nb"]
    for name, value, (layer, pool, *_) in zip(dots.y, dots.x, dots.customdata, strict=True):
        assert value == pytest.approx(expected[name]["value"])
        assert (layer, pool) == (expected[name]["layers"], expected[name]["pool"])


def test_the_bars_of_a_classifier_end_at_its_interval() -> None:
    rows = probe_rows(classifiers=("logistic", "lda"))
    dots = next(t for t in classifiers(rows, FakeRecord(rows)).data if t.name == "probe")
    for i, (_, _, low, high, _) in enumerate(dots.customdata):
        assert dots.x[i] - dots.error_x.arrayminus[i] == pytest.approx(low)
        assert dots.x[i] + dots.error_x.array[i] == pytest.approx(high)


def test_classifiers_without_an_interval_have_no_bar() -> None:
    rows = probe_rows(classifiers=("logistic", "lda")).with_columns(low=None, high=None)
    dots = next(t for t in classifiers(rows, FakeRecord(rows)).data if t.name == "probe")
    assert set(dots.error_x.array) == set(dots.error_x.arrayminus) == {0}


def test_the_best_classifier_is_at_the_top_above_the_baselines() -> None:
    rows = probe_rows(classifiers=("nb", "logistic", "forest"))
    order = list(classifiers(rows, FakeRecord(rows)).layout.yaxis.categoryarray)
    assert order[-3:] == ["nb", "forest", "logistic"]
    assert order[0] == theme.BASELINE_STYLES["majority"][0]


def test_a_learning_curve_follows_the_layer_that_is_best_with_all_rows() -> None:
    rows = probe_rows(layers=("2", "7", "9"), sizes=(140, 400, 1400))
    line = next(t for t in learning_curve(rows, FakeRecord(rows)).data if t.mode == "lines+markers")
    full = means(rows.filter(pl.col("n_train") == 1400), ["layers"]).sort("value")
    layer = full["layers"][-1]
    assert {point[0] for point in line.customdata} == {layer}
    assert list(line.x) == [140, 400, 1400]
    by_size = means(rows.filter(pl.col("layers") == layer), ["n_train"]).sort("n_train")
    assert list(line.y) == pytest.approx(by_size["value"].to_list())


def test_one_training_size_is_no_curve() -> None:
    rows = probe_rows()
    with pytest.raises(Missing, match="--protocol curve"):
        learning_curve(rows, FakeRecord(rows))


def test_each_model_is_at_its_size_and_best_layer() -> None:
    rows = probe_rows(models=tuple(SIZES))
    figure = model_sizes(rows, FakeRecord(rows, model=MODELS))
    line = next(t for t in figure.data if t.mode == "lines+markers")
    assert list(line.x) == sorted(SIZES.values())
    best = means(rows, ["model", "layers"]).group_by("model").agg(pl.col("value").max())
    expected = dict(best.rows())
    assert list(line.y) == pytest.approx([expected[m] for m in sorted(SIZES, key=SIZES.get)])
    names = {n.text: n.x for n in figure.layout.annotations if n.text in SIZES}
    assert names == {m: pytest.approx(math.log10(size)) for m, size in SIZES.items()}


def test_models_of_unknown_size_are_left_out_and_one_model_is_too_few() -> None:
    rows = probe_rows(models=tuple(SIZES))
    figure = model_sizes(rows, FakeRecord(rows, model=MODELS[:2]))
    line = next(t for t in figure.data if t.mode == "lines+markers")
    assert list(line.x) == sorted(SIZES[m["name"]] for m in MODELS[:2])
    with pytest.raises(Missing, match="two models"):
        model_sizes(rows, FakeRecord(rows, model=MODELS[:1]))
