"""Scores of answers: exact match, log-RMSE over all answers that are numbers, and by group."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.measure.intervals import Interval, bootstrap, wilson
from cutaway.measure.metrics import log_rmse

Answers = NDArray[Any]
"""Texts, or numbers of any kind; integers stay integers: float64 is not exact beyond 2^53."""


@dataclass(frozen=True)
class AnswerScores:
    """The scores of a set of answers."""

    exact_match: Interval
    log_rmse: Interval | None
    """Undecodable answers count as the worst possible answer; None if answers aren't numbers."""
    undecodable: Interval
    """The share of answers that never end, or have no number where one is expected."""

    def metrics(self) -> dict[str, Interval]:
        """The scores by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


def score_answers(
    truth: Answers, answers: Answers, *, seed: int = 0, resamples: int = 200
) -> AnswerScores:
    """The scores of answers: numbers, NaN where there is none; or texts, None for no answer."""
    exact = wilson(float(exact_matches(truth, answers).sum()), len(truth))
    if any(isinstance(value, str) for value in truth.tolist()):
        lacking = sum(value is None for value in answers.tolist())
        return AnswerScores(exact, None, wilson(float(lacking), len(truth)))
    truth, answers = (np.asarray(side, dtype=np.float64) for side in (truth, answers))
    missing = float(np.isnan(answers).sum())
    worst = float(10 * truth.max() + 9)
    # Results below 0 are possible: errors are measured from the lowest.
    shift = min(float(truth.min()), 0.0)
    spread = bootstrap(
        lambda rows: log_rmse(truth[rows] - shift, answers[rows] - shift, worst=worst - shift),
        len(truth),
        seed=seed,
        resamples=resamples,
    )
    return AnswerScores(exact, spread, wilson(missing, len(truth)))


def exact_matches(truth: Answers, answers: Answers) -> NDArray[np.bool_]:
    """Whether each answer is correct to the last digit or character."""
    return np.asarray(truth.astype(object) == answers.astype(object), dtype=np.bool_)


def exact_match_by_group(
    truth: Answers, answers: Answers, columns: Mapping[str, NDArray[np.generic]]
) -> Iterator[tuple[str, Interval]]:
    """(`digits 2`, exact match) for every value of every column, in order."""
    for column, values in columns.items():
        for value in np.unique(values):
            rows = values == value
            right = float(exact_matches(truth[rows], answers[rows]).sum())
            yield f"{column} {value}", wilson(right, int(rows.sum()))
