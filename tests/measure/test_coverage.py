"""A sample of bench/intervals.py: 95 % intervals cover the truth about as often as they say."""

import numpy as np
import pytest
from bench.intervals import SITUATIONS

SAMPLE = {
    "accuracy 0.96, 40 rows": 300,
    "repeats 3, 60 rows, accuracy 0.74": 150,
    "kfold 5, 200 rows, accuracy 0.985": 100,
    "auc, 10 % positive, near 1, 200 rows": 60,
    "f1 near 1, equal classes, 200 rows": 60,
    "mcc near 1, equal classes, 40 rows": 60,
    "r2 medium, 40 rows": 60,
    "paired, repeats 3, 60 rows, difference 0": 100,
    "relative gain 0.8, 200 rows": 200,
    "curve, 40 of 140 training rows, 200 rows": 60,
    "5 seeds, 200 rows, unequal trainings": 300,
}


@pytest.mark.parametrize("name", SAMPLE)
def test_intervals_cover_the_truth(name):
    rng, simulate = np.random.default_rng(0), SITUATIONS[name]()
    drawn = [one for _ in range(SAMPLE[name]) if (one := simulate(rng)) is not None]
    covered = np.mean([one.ours[0] <= one.truth <= one.ours[1] for one in drawn])
    # 93 to 97 %, give or take two standard errors of the sample.
    slack = 2 * np.sqrt(0.05 * 0.95 / len(drawn))
    assert 0.93 - slack <= covered <= 0.97 + slack
    assert min(one.ours[1] - one.ours[0] for one in drawn) > 0
