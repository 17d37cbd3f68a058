"""How good answers are: exact match, log-RMSE with nothing dropped, by digits and operator."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.measure.intervals import Interval, bootstrap, wilson
from cutaway.measure.metrics import log_rmse

Numbers = NDArray[Any]
"""Numbers of any kind; whole ones as such, for float64 mixes up neighbours beyond 2^53."""


@dataclass(frozen=True)
class AnswerScores:
    """What a set of answers is worth."""

    exact_match: Interval
    log_rmse: Interval
    """An undecodable answer counts as the worst one that could be given."""
    undecodable: Interval
    """The share of answers that are no number."""

    def metrics(self) -> dict[str, Interval]:
        """The scores by name."""
        return {
            "exact_match": self.exact_match,
            "log_rmse": self.log_rmse,
            "undecodable": self.undecodable,
        }


def score_answers(
    truth: Numbers, answers: Numbers, *, seed: int = 0, resamples: int = 200
) -> AnswerScores:
    """The scores of answers, NaN where there is no number."""
    right = float(exact_matches(truth, answers).sum())
    truth, answers = (np.asarray(side, dtype=np.float64) for side in (truth, answers))
    lost = float(np.isnan(answers).sum())
    worst = float(10 * truth.max() + 9)
    # Answers below 0 can be right where truths are below 0: distances count from the lowest.
    shift = min(float(truth.min()), 0.0)
    spread = bootstrap(
        lambda rows: log_rmse(truth[rows] - shift, answers[rows] - shift, worst=worst - shift),
        len(truth),
        seed=seed,
        resamples=resamples,
    )
    return AnswerScores(wilson(right, len(truth)), spread, wilson(lost, len(truth)))


def exact_matches(truth: Numbers, answers: Numbers) -> NDArray[np.bool_]:
    """Whether each answer is the right one, to the last digit."""
    return np.asarray(truth.astype(object) == answers.astype(object), dtype=np.bool_)


def exact_match_by_group(
    truth: Numbers, answers: Numbers, facts: Mapping[str, NDArray[np.generic]]
) -> Iterator[tuple[str, Interval]]:
    """(`digits 2`, exact match) for every value of every fact, in order."""
    for fact, values in facts.items():
        for value in np.unique(values):
            rows = values == value
            right = float(exact_matches(truth[rows], answers[rows]).sum())
            yield f"{fact} {value}", wilson(right, int(rows.sum()))
