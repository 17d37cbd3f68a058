"""Headlines on real sets, and what a fresh confirmation set says.

Of a real set small ones are drawn. On each of them the whole grid is fitted and the headline chosen
on validation rows; the same fits are then scored on all the rows that the small set lacks. The
headline should differ from that score by no more than its interval in 95 % of cases. The fresh
score has an error too, which the second column adds to the interval. The sets are not part of the
project: give a folder with `--sets`.
"""

from pathlib import Path
from typing import Any

import numpy as np

from bench.report import Lacking, row
from bench.selection import CLASSIFIERS, ONE_SPLIT, LabelledStates, confirm, read_states
from cutaway.data.load import load_text_set
from cutaway.measure.splits import SplitPlan

SETS = (
    "sst2_sentences", "cr/all.tsv", "mpqa/all.tsv", "cola", "ag_news/test.tsv",
    "probing_ud/tense.tsv", "probing_ud/subj_number.tsv", "probing_ud/bigram_shift.tsv",
)  # fmt: skip
"""In the folder that is given; what is missing there is left out."""
MODEL = "smollm2-135m"
MOST, RUNS = 3000, 50
"""Rows of a set, and small sets drawn from it with each protocol."""
PLANS = {
    "one split of 500": (500, ONE_SPLIT),
    "one split of 200": (200, ONE_SPLIT),
    "5 repeats of 300": (300, SplitPlan("repeats", repeats=5)),
}
LEAST = 0.93


def run(
    quick: bool, sets: Path | None = None, model: str | None = None, rows: int | None = None
) -> dict[str, Any]:
    """The share of confirmed headlines, by set and protocol."""
    if sets is None:
        raise Lacking("a folder with real sets: --sets FOLDER")
    there = [name for name in SETS if (sets / name).exists()]
    if not there:
        raise Lacking(f"one of {', '.join(SETS)} in {sets}")
    runs, name = 2 if quick else RUNS, model or MODEL
    lines: list[dict[str, Any]] = []
    found: list[dict[str, float]] = []
    for one in there[:1] if quick else there:
        states = read_states(
            name, load_text_set(str(sets / one), limit=rows or MOST, drop_empty=True)
        )
        for title, (size, plan) in PLANS.items():
            every = [confirm(states, size, seed, plan) for seed in range(runs)]
            found += every
            lines.append(_line(f"{one.split('.')[0]}, {title} rows", states, every))
    cells = len(states.features) * len(CLASSIFIERS)
    return {
        "title": "Headlines on real sets, confirmed on fresh rows",
        "text": f"{Path(name).name}, {cells} cells, {runs} small sets of each kind, at most "
        f"{rows or MOST:,} rows of each real set; all rows that a small set lacks confirm it. In "
        "the interval: of the headline alone; within both: with the error of the fresh score. The "
        "standard error of a line of 50 is 3 %, that of the first line 0.6 %.",
        "table": [_line("all", None, found), *lines],
    }


def _line(
    what: str, states: LabelledStates | None, every: list[dict[str, float]]
) -> dict[str, Any]:
    mean = {key: float(np.mean([one[key] for one in every])) for key in every[0]}
    metric = "" if states is None else f"{states.metric} "
    text = (
        f"{mean['in_interval']:.1%}, within both {mean['in_both']:.1%} ({len(every)} headlines; "
        f"{metric}{mean['value']:.3f}, fresh {mean['confirmed']:.3f}, best on test "
        f"{mean['best_on_test']:.3f})"
    )
    return row(what, text, bar=f"at least {LEAST:.0%} within both", met=mean["in_both"] >= LEAST)
