"""What choosing on validation rows costs: the grid with the choice, and the same grid without it.

Both fit the same cells on the same splits and measure them on the test rows. One of
them also scores each cell on the validation rows, chooses one in each repeat, and reads the
headline and the best on test; the other reads the best on test only. Processor time, in turns.
"""

import time
from typing import Any

import numpy as np
import torch

from bench.report import row
from bench.selection import CLASSIFIERS, ONE_SPLIT, LabelledStates, cells, draw_splits
from cutaway.measure.jackknife import assign_blocks
from cutaway.measure.splits import Split, SplitPlan
from cutaway.methods.probe.evidence import Evidence, best_on_test_facts, headline_facts

LAYERS, POOLERS, WIDTH = 31, ("last", "mean"), 576
"""The grid of a model with 135 M parameters."""
PLANS = {
    "one split of 500 rows": ONE_SPLIT,
    "5 repeats of 500 rows": SplitPlan("repeats", repeats=5),
}
MOST = 0.10


def run(quick: bool, rounds: int = 5) -> dict[str, Any]:
    """The processor time of both, by protocol."""
    rows, layers = (120, 2) if quick else (500, LAYERS)
    states = random_states(rows, layers)
    lines = []
    for name, plan in PLANS.items():
        splits = draw_splits(states, plan, 0)
        pairs = [
            [seconds(states, splits, choose=choose) for choose in order]
            for turn in range(1 if quick else rounds)
            for order in [(True, False) if turn % 2 == 0 else (False, True)]
        ]
        both = np.array([p if turn % 2 == 0 else p[::-1] for turn, p in enumerate(pairs)])
        more = both[:, 0] / both[:, 1] - 1
        middle = float(np.median(more))
        lines.append(
            row(f"choosing, {name}", f"{np.median(both[:, 0]):.2f} s, {middle:+.1%} "
                f"({more.min():+.1%} to {more.max():+.1%} in {len(more)} turns)",
                f"without choosing: {np.median(both[:, 1]):.2f} s", None,
                f"less than {MOST:.0%} more", middle < MOST)
        )  # fmt: skip
    return {
        "title": "Cost of choosing on validation rows",
        "text": f"Random states, {layers} layers x {len(POOLERS)} poolers x {len(CLASSIFIERS)} "
        f"classifiers, width {WIDTH}; extraction of the states and baselines, which are the same "
        "for both, are left out, so that the share of the whole run is smaller.",
        "table": lines,
    }


def random_states(rows: int, layers: int) -> LabelledStates:
    """States that know nothing, with labels."""
    drawn = torch.Generator().manual_seed(0)
    states = {
        (str(layer), pool): torch.randn(rows, WIDTH, generator=drawn)
        for layer in range(layers)
        for pool in POOLERS
    }
    return LabelledStates(states, np.arange(rows) % 2)


def seconds(states: LabelledStates, splits: tuple[Split, ...], *, choose: bool) -> float:
    """The processor time of the whole grid."""
    start = time.process_time()
    blocks = assign_blocks([one.test for one in splits], len(states))
    made = tuple(cells(states, splits, blocks, validated=choose))
    evidence = Evidence(states.metric, made, repeats=tuple(one.repeat for one in splits))
    if choose:
        headline_facts(evidence)
    best_on_test_facts(evidence)
    return time.process_time() - start
