"""Repeats."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cutaway.measure.intervals import Interval, clip_interval
from cutaway.measure.metrics import UNIT, metric_facts
from cutaway.measure.shared_test_variance import ResamplingInfo, mean_interval
from cutaway.measure.splits import Split


@dataclass(frozen=True)
class RepeatMetrics:
    """What one repeat of a cell gave: its sizes and its metrics."""

    repeat: int
    n_train: int
    n_val: int
    n_test: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    size: int | None = None
    """The training size asked for by a learning curve: repeats of one size belong together."""
    drawn: int | None = None
    tested: int | None = None
    """Both as the split has them."""
    blocks: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Pseudo-values of some metrics over blocks of shared test rows."""

    @classmethod
    def of(
        cls,
        split: Split,
        metrics: Mapping[str, float],
        blocks: Mapping[str, tuple[float, ...]] | None = None,
    ) -> "RepeatMetrics":
        """The metrics of one split."""
        sizes = len(split.train), len(split.val), len(split.test)
        return cls(
            split.repeat, *sizes, metrics, split.size, split.drawn, split.tested, blocks or {}
        )


def resampling_info(group: Sequence[RepeatMetrics], metric: str) -> ResamplingInfo:
    """What one metric of some repeats stands on."""
    train, test = (float(np.mean([getattr(m, k) for m in group])) for k in ("n_train", "n_test"))
    of_train = metric.endswith("_train")
    tested = round(train) if of_train and group[0].tested else group[0].tested
    known = [m.blocks[metric] for m in group if metric in m.blocks]
    if of_train and len(group) == 1:
        test = train
    return ResamplingInfo(
        float(np.mean([m.drawn or m.n_train for m in group])), test, tested,
        tuple(np.mean(known, axis=0).tolist()) if known else (),
    )  # fmt: skip


def group_by_size(measured: Sequence[RepeatMetrics]) -> Iterable[list[RepeatMetrics]]:
    """The repeats of each training size."""
    found: dict[int | None, list[RepeatMetrics]] = defaultdict(list)
    for one in measured:
        found[one.size].append(one)
    return found.values()


def metric_interval(
    values: Sequence[float], group: Sequence[RepeatMetrics], metric: str
) -> Interval:
    """The 95 % interval of the mean, by what the repeats were tested on."""
    facts = metric_facts(metric)
    interval = mean_interval(values, resampling_info(group, metric), share=facts.proportion)
    return clip_interval(interval, 0.0, 1.0) if facts.bounds == UNIT else interval
