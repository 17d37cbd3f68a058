from cutaway.measure.metrics import METRICS
from cutaway.report import cells


def test_lower_is_better_agrees_with_the_metrics_table() -> None:
    for name, metric in METRICS.items():
        assert (name in cells.LOWER_IS_BETTER) == (not metric.higher_is_better), name
