"""Reproduces a paper's findings on a model: run its steps, compare expected and measured values.

A finding states that a difference is at least as large as expected. It holds if that is shown,
fails if the opposite is shown (a one-sided test at 5 % each), and otherwise the rows can't tell.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from math import isnan, sqrt
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import polars as pl

from cutaway.catalog import VERBS
from cutaway.console import Console
from cutaway.core.errors import BadSpec, Missing
from cutaway.core.spec import Spec, build_spec
from cutaway.measure.conclusions import margin_of
from cutaway.measure.intervals import normal_quantile
from cutaway.measure.metrics import metric_facts
from cutaway.recipe.result import Result
from cutaway.studies.findings import Finding, FindingSide, Study, StudyStep

NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})
MEASURED_COLUMNS = ("metric", "value", "low", "high")
FindingConclusion = Literal["holds", "fails", "can't tell"]
CONFIDENCE = 0.95
"""Of the intervals in the tables; a one-sided test at 5 % uses one of 90 %."""
POWER = 0.8
RunVerb = Callable[[str, Spec], Result]
"""Runs a verb with a spec."""


@dataclass(frozen=True)
class MeasuredValue:
    """A number from a table, with its interval if known."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class FindingResult:
    """A finding with its expected and measured values."""

    says: str
    expected: str
    more: MeasuredValue
    less: MeasuredValue
    difference: MeasuredValue
    conclusion: FindingConclusion
    passed: bool
    """Whether it is shown to hold."""
    rows_factor: float | None = None
    """How many times as many test rows would tell, where these can't."""


@dataclass(frozen=True)
class StudyResult:
    """The results of all findings of a study."""

    study: str
    title: str
    paper: str
    judged: tuple[FindingResult, ...]
    runs: dict[str, str]
    """The address of each step's run."""
    places: dict[str, str]
    """The model and data that were used."""

    @property
    def passed(self) -> int:
        """The number of findings that are shown to hold."""
        return sum(one.passed for one in self.judged)

    def plain(self) -> dict[str, Any]:
        """The result as JSON-ready values."""
        counts = Counter(one.conclusion for one in self.judged)
        return {
            **asdict(self), "passed": self.passed, "failed": counts["fails"],
            "unknown": counts["can't tell"], "findings": len(self.judged),
        }  # fmt: skip


def reproduce(
    study: Study,
    given: Mapping[str, str | None],
    run_verb: RunVerb,
    *,
    runs: str,
    console: Console,
    shared: Mapping[str, Any] = NO_OPTIONS,
) -> StudyResult:
    """Run every step and test every finding; `given` replaces the study's default placeholders."""
    results: dict[str, Result] = {}
    steps = study_specs(study, given, runs=runs, shared=shared)
    for number, (name, (step, spec)) in enumerate(steps.items(), start=1):
        console.print(f"\n{study.name}, {number} of {len(steps)}: cutaway {step.verb}")
        results[name] = run_verb(step.verb, spec)
    tables = {name: result.rows for name, result in results.items()}
    addresses = {name: result.record.address for name, result in results.items()}
    judged = tuple(judge_finding(finding, tables) for finding in study.findings)
    places = _placeholder_values(study, given)
    return StudyResult(study.name, study.title, study.paper, judged, addresses, places)


def study_specs(
    study: Study,
    given: Mapping[str, str | None],
    *,
    runs: str,
    shared: Mapping[str, Any] = NO_OPTIONS,
) -> dict[str, tuple[StudyStep, Spec]]:
    """Every step with its spec, by name; `shared` are options of all verbs: seed, device ..."""
    places = {**_placeholder_values(study, given), "out": f"{runs}/{study.name}"}
    return {
        step.name: (step, _step_spec(step, places, {**shared, "runs": runs}))
        for step in study.steps
    }


def judge_finding(finding: Finding, tables: Mapping[str, pl.DataFrame]) -> FindingResult:
    """Whether the tables show the finding."""
    more, less = (read_value(side, tables) for side in (finding.more, finding.less))
    gap = value_difference(more, less)
    wanted = f"at least {finding.by:g} more" if finding.by else "at least as much"
    expected = f"{wanted} (tolerance {finding.tolerance:g})" if finding.tolerance else wanted
    found = _conclude(gap, finding.by - finding.tolerance)
    factor = _rows_factor(gap, finding.more.metric) if found == "can't tell" else None
    return FindingResult(finding.says, expected, more, less, gap, found, found == "holds", factor)


def _conclude(gap: MeasuredValue, wanted: float) -> FindingConclusion:
    """Whether the true difference is at least the wanted one; without an interval none can tell."""
    width = _half_width(gap)
    if width is None or isnan(gap.value):
        return "can't tell"
    one_sided = width * normal_quantile(2 * CONFIDENCE - 1) / normal_quantile(CONFIDENCE)
    if gap.value - one_sided >= wanted:
        return "holds"
    return "fails" if gap.value + one_sided < wanted else "can't tell"


def _rows_factor(gap: MeasuredValue, metric: str) -> float | None:
    """How many times the rows show a difference of the metric's margin with 80 % power."""
    width, margin = _half_width(gap), margin_of(metric)
    if not width or isnan(width) or isnan(margin):
        return None
    error = width / normal_quantile(CONFIDENCE)
    reach = normal_quantile(2 * CONFIDENCE - 1) + normal_quantile(2 * POWER - 1)
    return max(1.0, (reach * error / margin) ** 2)


def read_value(side: FindingSide, tables: Mapping[str, pl.DataFrame]) -> MeasuredValue:
    """The value of a side; Missing when no cell of the table matches."""
    if side.value is not None:
        return MeasuredValue(side.value, side.value, side.value)
    table = _select_rows(tables[str(side.step)], side)
    cells = table.filter((pl.col("metric") == side.metric) & pl.col("value").is_not_null())
    if cells.is_empty():
        raise Missing(f"The step {side.step!r} measured no {side.metric!r} where {side.where!r}.")
    if side.take == "mean":
        return _mean_value(cells)
    if side.take == "chosen":
        return _mean_value(_chosen_cells(table, cells, side.metric))
    best = cells.sort("value", descending=side.take == "max").row(0, named=True)
    return MeasuredValue(best["value"], best["low"], best["high"])


def _chosen_cells(table: pl.DataFrame, cells: pl.DataFrame, metric: str) -> pl.DataFrame:
    """The cell with the best score on validation rows, in each repeat."""
    cell = [name for name in table.columns if name not in MEASURED_COLUMNS]
    scores = table.filter(pl.col("metric") == f"{metric}_val").select(*cell, validation="value")
    if scores.is_empty():
        raise Missing(f"No score of {metric!r} on validation rows: there is nothing to choose by.")
    down = metric_facts(metric).higher_is_better
    ranked = cells.join(scores, on=cell, nulls_equal=True, maintain_order="left")
    ranked = ranked.sort("validation", descending=down, nulls_last=True, maintain_order=True)
    return ranked.unique("repeat", keep="first", maintain_order=True)


def value_difference(more: MeasuredValue, less: MeasuredValue) -> MeasuredValue:
    """The difference; its interval assumes independent measurements."""
    difference, widths = more.value - less.value, [_half_width(v) for v in (more, less)]
    if any(width is None for width in widths):
        return MeasuredValue(difference)
    width = sqrt(sum((w or 0.0) ** 2 for w in widths))
    return MeasuredValue(difference, difference - width, difference + width)


def _half_width(one: MeasuredValue) -> float | None:
    if one.low is None or one.high is None:
        return None
    return (one.high - one.low) / 2


def _mean_value(cells: pl.DataFrame) -> MeasuredValue:
    """The mean over cells; the mean of their interval bounds, which is conservative."""
    value, low, high = (cells[name].cast(pl.Float64).to_numpy() for name in MEASURED_COLUMNS[1:])
    if np.isnan(low).any() or np.isnan(high).any():
        return MeasuredValue(float(value.mean()))
    return MeasuredValue(float(value.mean()), float(low.mean()), float(high.mean()))


def _select_rows(table: pl.DataFrame, side: FindingSide) -> pl.DataFrame:
    """The rows of the cells that a side selects."""
    for column, wanted in side.where.items():
        if column not in table.columns:
            raise BadSpec(f"No column {column!r}. There are: {', '.join(table.columns)}.")
        denied = isinstance(wanted, dict)
        same = pl.col(column).eq_missing(pl.lit(wanted["not"] if denied else wanted))
        table = table.filter(~same if denied else same)
    cell = [name for name in table.columns if name not in MEASURED_COLUMNS]
    for metric, least in side.given.items():
        good = table.filter((pl.col("metric") == metric) & (pl.col("value") >= least))
        table = table.join(good.select(cell).unique(), on=cell, how="semi", nulls_equal=True)
    return table


def _placeholder_values(study: Study, given: Mapping[str, str | None]) -> dict[str, str]:
    """The values of the placeholders."""
    given_values = {name: value for name, value in given.items() if value is not None}
    unknown = [name for name in given_values if name not in study.defaults]
    if unknown:
        raise BadSpec(
            f"The study {study.name!r} has no option --{unknown[0]}. "
            f"It has: {', '.join('--' + name for name in study.defaults)}."
        )
    return {**study.defaults, **given_values}


def _step_spec(step: StudyStep, places: Mapping[str, str], shared: Mapping[str, Any]) -> Spec:
    """The step's spec with its placeholders replaced; options that become empty are omitted."""
    if step.verb not in VERBS:
        raise BadSpec(f"The step {step.name!r} has no known verb: {step.verb!r}.")
    filled = {name: _fill_placeholders(value, places) for name, value in step.fields.items()}
    options = {name: value for name, value in filled.items() if value != ""}
    return build_spec(VERBS[step.verb].spec_class, {**shared, **options})


def _fill_placeholders(value: Any, places: Mapping[str, str]) -> Any:
    """A string with its placeholders replaced."""
    if not isinstance(value, str):
        return value
    for name, place in places.items():
        value = value.replace(f"<{name}>", place)
    return value
