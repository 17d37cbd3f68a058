"""What a difference allows to conclude: it is shown, shown to be absent, or neither.

- shown: the difference is significant, p < level.
- absent: the interval of level 1 - 2 * level lies inside -margin..margin, which is the two
  one-sided tests procedure (TOST; Schuirmann 1987). A difference that is both significant and
  smaller than the margin is shown: `Conclusion.within_margin` tells that it is small.
- unknown: neither. `rows_needed` then estimates how many test rows would settle it.

"Not significant" alone never means "absent".
"""

from dataclasses import dataclass
from math import ceil, erfc, hypot, isnan, sqrt
from typing import Literal

from cutaway.core.errors import BadSpec
from cutaway.measure.intervals import Difference, Interval, normal_quantile, t_quantile

ConclusionKind = Literal["shown", "absent", "unknown"]
POWER = 0.8
"""The probability of a conclusion that `rows_needed` aims at."""
MARGIN = 0.02
"""The largest difference that counts as none: 2 rows in 100; of a loss in nats, 2 % of its exp."""
MARGINS = {
    # Their range is -1..1; with equal classes, Matthews' correlation is twice the accuracy minus 1.
    **dict.fromkeys(("mcc", "spearman", "pearson"), 2 * MARGIN),
    # A ratio of two differences, of which each has the error of its rows.
    "relative_gain": 0.05,
    # No natural scale: a difference can be shown, but not shown to be absent.
    **dict.fromkeys(("mse", "rmse", "mae", "perplexity", "mdl_bits"), float("nan")),
}
"""The margin by metric where it is not MARGIN; NaN if there is none."""


@dataclass(frozen=True)
class Conclusion:
    """What the difference between two scores allows to conclude."""

    kind: ConclusionKind
    difference: Difference
    margin: float
    """A difference of at most this size counts as none; NaN if the metric has no such size."""
    level: float
    """The largest probability of a false `shown` or `absent`."""
    rows_needed: int | None = None
    """Test rows that would settle an unknown difference: with 80 % power to show one of the size
    of the margin, and to show that one of 0 is absent. None if it is settled, or can't be known."""

    @property
    def within_margin(self) -> bool:
        """Whether the difference is smaller than the margin, shown or not."""
        return _inside(equivalence_interval(self.difference, self.level), self.margin)


def conclude(
    difference: Difference, *, margin: float, rows: int, level: float = 0.05
) -> Conclusion:
    """What a difference measured on this many test rows allows to conclude."""
    if margin <= 0:
        raise BadSpec(f"margin must be above 0 (NaN for none), got {margin!r}.")
    if difference.p < level:
        return Conclusion("shown", difference, margin, level)
    if _inside(equivalence_interval(difference, level), margin):
        return Conclusion("absent", difference, margin, level)
    needed = _rows_needed(_standard_error(difference), margin, rows, level)
    return Conclusion("unknown", difference, margin, level, needed)


def unpaired(first: Interval, second: Interval) -> Difference:
    """First minus second, from their own intervals, as if measured on different rows.

    For scores on the same rows that rise and fall together, such as losses of the same texts, the
    test is conservative; for others see `shared_rows.py`. Equal ends are a known value; without
    ends nothing is known.
    """
    gap, level = first.mean - second.mean, first.level
    width = hypot(*((one.high - one.low) / 2 for one in (first, second)))
    error = width / normal_quantile(level)
    p = 2 * normal_tail(abs(gap) / error) if error > 0 else float("nan")
    ends = (gap, gap) if error == 0 else (gap - width, gap + width)
    return Difference(Interval(gap, *ends, level, min(first.n, second.n)), p)


def margin_of(metric: str) -> float:
    """The default margin of a metric, also of `<metric>_ref` and `<metric>_train`."""
    return MARGINS.get(metric.removesuffix("_ref").removesuffix("_train"), MARGIN)


def equivalence_interval(difference: Difference, level: float) -> Interval:
    """The interval of level 1 - 2 * level, from that of the difference."""
    span = difference.interval
    scale = t_quantile(difference.freedom, 1 - 2 * level) / t_quantile(
        difference.freedom, span.level
    )
    low, high = (span.mean + scale * (end - span.mean) for end in (span.low, span.high))
    return Interval(span.mean, low, high, 1 - 2 * level, span.n)


def _inside(interval: Interval, margin: float) -> bool:
    return -margin < interval.low and interval.high < margin


def _standard_error(difference: Difference) -> float:
    """Half the width of the interval, in quantiles of its distribution."""
    span = difference.interval
    return (span.high - span.low) / 2 / t_quantile(difference.freedom, span.level)


def _rows_needed(error: float, margin: float, rows: int, level: float) -> int | None:
    if isnan(error) or isnan(margin) or error <= 0 or rows < 1:
        return None
    shown = normal_quantile(1 - level) + normal_quantile(2 * POWER - 1)
    absent = normal_quantile(1 - 2 * level) + normal_quantile(POWER)
    needed = rows * (max(shown, absent) * error / margin) ** 2
    # With as many rows as there are, this question was not settled.
    return max(ceil(needed), rows + 1)


def describe(
    found: Conclusion,
    *,
    rows: int,
    test: str,
    words: tuple[str, str] = ("better", "worse"),
    unit: str = "test rows",
    digits: int = 3,
) -> str:
    """The end of a sentence about a difference: what is concluded, by which test, how sure.

    `words` name a positive and a negative difference; `test` names the test of the difference.
    """
    span, p = found.difference.interval, found.difference.p
    size = f"{span.mean:+.{digits}f}"
    if not isnan(span.low):
        size += f" [{span.low:+.{digits}f}, {span.high:+.{digits}f}]"
    if found.kind == "shown":
        little = f" by less than {found.margin:g}" if found.within_margin else ""
        return f"{words[span.mean < 0]}{little}, {size} ({test}, {_p_text(p)})"
    if found.kind == "absent":
        return f"no difference larger than {found.margin:g}, {size} ({test}, equivalence test)"
    needed = found.rows_needed
    more = "" if needed is None else f"; {rows_would_show(needed, found.margin)}"
    known = "" if isnan(p) else f" ({test}, {_p_text(p)})"
    return f"{rows:,} {unit} can't tell, {size}{known}{more}"


def normal_tail(errors: float) -> float:
    """The probability that a normal variable is larger than this many standard errors."""
    return erfc(errors / sqrt(2)) / 2


def _p_text(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def rows_would_show(rows: int, margin: float) -> str:
    """How many rows would settle what these can't tell, and to which precision."""
    return f"about {round_rows_up(rows):,} would show a difference of {margin:g}"


def round_rows_up(rows: int) -> int:
    """Two significant digits: more would feign precision."""
    step = 10 ** max(0, len(str(rows)) - 2)
    return -(-rows // step) * step
