"""The tidy rows of inject: every row has the columns of the schema, in its order."""

from types import SimpleNamespace

import polars as pl
import pytest

from cutaway.measure.intervals import Interval
from cutaway.methods.inject.rows import SCHEMA, InjectCoordinates, curve_rows, inject_frame

HERE = InjectCoordinates("m", "arithmetic", "ewc", 0.5, 3)


def test_a_row_has_its_coordinates_and_an_interval_where_there_is_one() -> None:
    bare = HERE.row("after", "docs", "lm_loss", 2.0, step=4)
    whole = HERE.row("after", "docs", "lm_loss", Interval(2.0, 1.5, 2.5, 0.95, 9))
    assert (bare["model"], bare["strength"], bare["seed"], bare["step"]) == ("m", 0.5, 3, 4)
    assert "low" not in bare
    assert (whole["value"], whole["low"], whole["high"]) == (2.0, 1.5, 2.5)


def test_rows_of_metrics_and_of_weights() -> None:
    rows = HERE.rows("after", "docs", {"lm_loss": 2.0, "perplexity": 7.4})
    assert [(r["probe"], r["metric"]) for r in rows] == [
        ("docs", "lm_loss"),
        ("docs", "perplexity"),
    ]
    (drift,) = HERE.weight_rows("drift", "drift", {(2, "mlp"): 0.3})
    assert (drift["stage"], drift["probe"], drift["value"]) == ("drift", "2/mlp", 0.3)


def test_the_table_has_every_column_and_nan_is_null() -> None:
    frame = inject_frame([HERE.row("after", "docs", "lm_loss", float("nan"))])
    assert dict(frame.schema) == {name: kind() for name, kind in SCHEMA.items()}
    assert frame["value"].to_list() == [None]
    assert inject_frame([]).columns == list(SCHEMA)


def test_a_learning_curve_has_a_row_per_evaluation_and_its_end() -> None:
    curve = [{"step": 0, "exact_match": 0.0, "skill": None}, {"step": 5, "exact_match": 0.4}]
    trained = SimpleNamespace(curve=curve, best_step=5, stopped="patience")
    frame = inject_frame(curve_rows(HERE, trained))
    points = frame.filter(pl.col("probe") == "curve")
    assert points.select("step", "metric", "value").rows() == [
        (0, "exact_match", 0.0),
        (0, "skill", None),
        (5, "exact_match", 0.4),
    ]
    ends = frame.filter(pl.col("probe") == "patience")
    assert dict(ends.select("metric", "value").rows()) == {"best_step": 5.0, "steps": 5.0}


@pytest.mark.parametrize("end", ["low", "high"])
def test_the_promised_columns_end_the_schema(end: str) -> None:
    assert list(SCHEMA)[-4:] == ["metric", "value", "low", "high"]
    assert SCHEMA[end] == pl.Float64
