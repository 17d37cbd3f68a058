"""Studies: what a finding compares, what a side reads, and that every study of ours can run."""

import math

import polars as pl
import pytest

from cutaway.catalog import VERBS
from cutaway.console import Console
from cutaway.core.errors import BadSpec, Missing, UnknownName
from cutaway.core.spec import Spec
from cutaway.studies.findings import Finding, FindingSide, find_study, known_studies
from cutaway.studies.reproduce import (
    MeasuredValue,
    _placeholder_values,
    _step_spec,
    judge_finding,
    read_value,
    reproduce,
    value_difference,
)

QUIET = Console(quiet=True)
ROWS = [
    # kind, layer, metric, value, low, high
    ("id", 1, "precision@1", 0.2, 0.1, 0.3),
    ("id", 2, "precision@1", 0.4, 0.3, 0.5),
    ("mat", 1, "precision@1", 0.6, 0.5, 0.7),
    ("mat", 2, "precision@1", 0.8, 0.7, 0.9),
    ("id", 1, "layers", 3.0, None, None),
    ("id", 2, "layers", 9.0, None, None),
    ("mat", 1, "layers", 2.0, None, None),
    ("mat", 2, "layers", 5.0, None, None),
]
TABLES = {
    "eval": pl.DataFrame(
        ROWS, schema=["kind", "layer", "metric", "value", "low", "high"], orient="row"
    )
}


def side(**said) -> FindingSide:
    return FindingSide(step="eval", metric="precision@1", **said)


@pytest.mark.parametrize(
    ("take", "expected"),
    [("mean", (0.3, 0.2, 0.4)), ("max", (0.4, 0.3, 0.5)), ("min", (0.2, 0.1, 0.3))],
)
def test_a_side_takes_its_cells_together(take, expected):
    got = read_value(side(where={"kind": "id"}, take=take), TABLES)
    assert (got.value, got.low, got.high) == pytest.approx(expected)


def test_the_chosen_cell_is_the_best_on_validation_rows_in_each_repeat():
    rows = [
        {
            "layers": layer,
            "repeat": repeat,
            "metric": metric,
            "value": value,
            "low": 0.1,
            "high": 0.9,
        }
        for layer, tested, seen in (("1", (0.5, 0.6), (0.9, 0.1)), ("2", (0.7, 0.8), (0.2, 0.3)))
        for metric, values in (("accuracy", tested), ("accuracy_val", seen))
        for repeat, value in enumerate(values)
    ]
    table = pl.DataFrame(rows)
    chosen = FindingSide(step="grid", take="chosen")
    assert read_value(chosen, {"grid": table}).value == pytest.approx((0.5 + 0.8) / 2)
    with pytest.raises(Missing, match="nothing to choose by"):
        read_value(chosen, {"grid": table.filter(pl.col("metric") == "accuracy")})


def test_what_must_not_stand_in_a_column_is_left_out():
    got = read_value(side(where={"kind": {"not": "id"}}), TABLES)
    assert got.value == pytest.approx(0.7)


def test_given_looks_at_another_metric_of_the_same_cell():
    wanted = FindingSide(
        step="eval", metric="layers", where={"kind": "mat"}, given={"precision@1": 0.7}, take="min"
    )
    assert read_value(wanted, TABLES).value == 5.0


def test_a_plain_value_is_itself():
    assert read_value(FindingSide(value=0.95), TABLES) == MeasuredValue(0.95, 0.95, 0.95)


def test_a_side_that_fits_no_cell_says_what_it_sought():
    with pytest.raises(Missing, match="measured no 'precision@1' where"):
        read_value(side(where={"kind": "tuned"}), TABLES)
    with pytest.raises(BadSpec, match=r"No column 'kinds'\. There are: kind"):
        read_value(side(where={"kinds": "id"}), TABLES)


def test_a_difference_is_as_unsure_as_both_sides_together():
    gap = value_difference(MeasuredValue(0.7, 0.6, 0.8), MeasuredValue(0.3, 0.3, 0.3))
    assert (gap.value, gap.low, gap.high) == pytest.approx((0.4, 0.3, 0.5))
    both = value_difference(MeasuredValue(0.7, 0.6, 0.8), MeasuredValue(0.3, 0.2, 0.4))
    assert both.high - both.low == pytest.approx(0.2 * math.sqrt(2))
    assert value_difference(MeasuredValue(0.7), MeasuredValue(0.3, 0.2, 0.4)).low is None


@pytest.mark.parametrize(
    ("by", "tolerance", "expected"),
    [
        # The difference is 0.4; its one-sided bounds are 0.281 and 0.519.
        (0.0, 0.0, "holds"), (0.28, 0.0, "holds"), (0.29, 0.0, "can't tell"),
        (0.4, 0.1, "can't tell"), (0.4, 0.12, "holds"), (0.5, 0.0, "can't tell"),
        (0.53, 0.0, "fails"),
    ],
)  # fmt: skip
def test_a_finding_holds_or_fails_only_when_that_is_shown(by, tolerance, expected):
    finding = Finding(
        says="mat beats id", more=side(where={"kind": "mat"}), less=side(where={"kind": "id"}),
        by=by, tolerance=tolerance,
    )  # fmt: skip
    found = judge_finding(finding, TABLES)
    assert found.conclusion == expected
    assert found.passed is (expected == "holds")
    # A standard error of 0.072 is to become 0.02 / (1.645 + 0.842).
    factor = found.rows_factor
    assert factor == pytest.approx(80.5, rel=0.01) if expected == "can't tell" else factor is None


def test_values_without_an_interval_show_nothing():
    layers = {"step": "eval", "metric": "layers", "take": "min"}
    finding = Finding(
        says="id needs more layers", more=FindingSide(**layers, where={"kind": "id"}),
        less=FindingSide(**layers, where={"kind": "mat"}),
    )  # fmt: skip
    found = judge_finding(finding, TABLES)
    assert found.difference.value > 0
    assert (found.conclusion, found.rows_factor) == ("can't tell", None)


@pytest.mark.parametrize("name", known_studies())
def test_every_step_of_every_study_is_a_spec_as_it_stands(name, tmp_path):
    study = find_study(name)
    places = {**_placeholder_values(study, {}), "out": str(tmp_path)}
    for step in study.steps:
        spec = _step_spec(step, places, {"runs": str(tmp_path), "seed": 3})
        assert isinstance(spec, VERBS[step.verb].spec_class)
        assert "<" not in str(spec.model_dump())


@pytest.mark.parametrize("name", known_studies())
def test_a_placeholder_that_is_given_reaches_its_steps(name, tmp_path):
    study = find_study(name)
    for place in study.defaults:
        places = {**_placeholder_values(study, {place: "given-here"}), "out": "o"}
        specs = [_step_spec(step, places, {"runs": "runs", "seed": 0}) for step in study.steps]
        assert any("given-here" in str(spec.model_dump()) for spec in specs)


def test_a_study_refuses_what_it_has_no_use_for():
    with pytest.raises(BadSpec, match=r"'shortcut' has no option --task\. It has: --model, --text"):
        reproduce(find_study("shortcut"), {"task": "sst2"}, None, runs="r", console=QUIET)


def test_an_unknown_study_is_refused_with_a_suggestion():
    with pytest.raises(UnknownName, match="shortcut"):
        find_study("shortcuts")


def test_a_finding_must_read_a_step_that_is_there(tmp_path):
    text = """
name = "mine"
title = "t"
paper = "p"
[defaults]
model = "m"
[[steps]]
name = "grid"
verb = "probe"
[[findings]]
says = "s"
more = { step = "gird" }
less = { value = 0.5 }
"""
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(BadSpec, match=r"refers to the unknown step 'gird'\. Steps: grid"):
        find_study(str(file))


def test_a_study_runs_its_steps_in_order_and_judges_their_tables(tmp_path):
    seen: list[str] = []

    class Kept:
        """A step's result, as far as a study looks at it."""

        rows = TABLES["eval"].with_columns(confidence=pl.lit("gap"))
        # id less surprised than mat: the paper's second finding must fail on it.
        surprised = rows.filter(metric="precision@1").with_columns(metric=pl.lit("surprisal"))
        rows = pl.concat([rows, surprised])

        class record:
            address = "a1"

    def carry(verb: str, spec: Spec) -> Kept:
        seen.append(verb)
        assert spec.runs == str(tmp_path)
        return Kept()

    study = find_study("shortcut")
    study = study.model_copy(update={"findings": study.findings[:2]})
    found = reproduce(study, {"model": "tiny"}, carry, runs=str(tmp_path), console=QUIET)
    assert seen == ["shortcut fit", "shortcut eval", "shortcut exit"]
    assert [one.passed for one in found.judged] == [True, False]
    assert found.plain()["passed"] == 1
    assert found.places["model"] == "tiny"
