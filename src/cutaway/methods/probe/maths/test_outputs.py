"""What a fitted classifier says of its test rows: measured on all of them, or on some."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.core.textset import Task
from cutaway.measure.calibration import ece
from cutaway.measure.metrics import METRICS, evaluate
from cutaway.measure.shared_test_variance import pseudo_values


@dataclass(frozen=True, eq=False)
class ProbeOutputs:
    """Truth and answers of the test rows; every metric is a function of these."""

    task: Task
    truth: NDArray[Any]
    decisions: NDArray[Any]
    """Values for regression."""
    ranks: NDArray[Any]
    """Scores that can be compared between rows."""
    chance: NDArray[Any] | None = None
    """Probabilities, where the classifier has them."""
    other: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Decisions at other cuts, by the metric they are for."""

    def metrics(self, rows: NDArray[Any] | slice = slice(None)) -> dict[str, float]:
        """Every metric of the task on these test rows, by their place."""
        truth = self.truth[rows]
        found = evaluate(truth, self.decisions[rows], self.ranks[rows], task=self.task)
        if "ece" in found:
            found["ece"] = np.nan if self.chance is None else ece(self.chance[rows], truth)
        for name, decisions in self.other.items():
            found[f"{name}_ref"] = METRICS[name](truth, decisions[rows])
        return found

    def pseudo_values(self, blocks: NDArray[Any], count: int, main: str) -> tuple[float, ...]:
        """The main metric's pseudo-values over blocks of the test rows."""
        metric = METRICS[main]
        said = {"score": self.ranks}.get(metric.needs, self.decisions)
        return pseudo_values(lambda rows: metric(self.truth[rows], said[rows]), blocks, count)

    def all_pseudo_values(self, blocks: NDArray[Any], count: int) -> dict[str, tuple[float, ...]]:
        """The pseudo-values of every metric."""
        some: dict[bytes, dict[str, float]] = {}

        def value(name: str) -> Callable[[NDArray[Any]], float]:
            def of(rows: NDArray[Any]) -> float:
                # Every metric asks for the same rows: they are measured once for all.
                key = rows.tobytes()
                if key not in some:
                    some[key] = self.metrics(rows)
                return some[key][name]

            return of

        return {name: pseudo_values(value(name), blocks, count) for name in self.metrics()}
