"""Whether scores chosen on validation rows are what they seem: null labels, and confirmation.

Null labels: the features of 31 layers x 2 poolers are read once, the labels are shuffled again and
again, and each time the whole grid of 186 cells is fitted. The headline's interval must contain
chance, no layer may be called worse than another, and the best cell on the test rows shows what
choosing on them adds. Confirmation: the real labels, of which small sets are drawn; the score that
each of them reports is compared with the score of the same choice on all the other rows.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import cutaway
from bench.report import row
from cutaway.data.load import load_text_set
from cutaway.measure.jackknife import assign_blocks
from cutaway.measure.repeats import RepeatMetrics, resampling_info
from cutaway.measure.splits import Split, SplitPlan, split
from cutaway.methods.probe.evidence import (
    Evidence,
    ProbeScore,
    best_on_test_facts,
    headline_facts,
)
from cutaway.methods.probe.maths.cell import probe_splits

MODEL, DATA = "smollm2-135m", "gen:sentiment?n=3000"
CLASSIFIERS = ("lda", "ridge", "nb")
RUNS, ROWS, WIDTH = 200, 500, 32
"""Runs of each kind, rows of a run, principal components of the features (for speed)."""
PARTS = (0.7, 0.1, 0.2)
METRIC = "accuracy"
Features = Mapping[tuple[str, str], torch.Tensor]


def run(quick: bool, rows: int | None = None) -> dict[str, Any]:
    """Coverage of chance and of a confirmation set's score, and false claims about layers."""
    count, runs = rows or (300 if quick else 3000), 3 if quick else RUNS
    small = min(ROWS, count // 3)
    features, labels = read_features(count, layers=(0, 15) if quick else None)
    null = [null_run(features, labels, small, seed) for seed in range(runs)]
    confirmed = [confirm(features, labels, small, seed) for seed in range(runs)]
    covered = float(np.mean([one["covered"] for one in null]))
    false = float(np.mean([one["worse"] > 0 for one in null]))
    agreed = float(np.mean([one["covered"] for one in confirmed]))
    best, gain = (float(np.mean([one[name] for one in null])) for name in ("best", "gain"))
    cells = len(features) * len(CLASSIFIERS)
    return {
        "title": "Scores chosen on validation rows",
        "text": f"{MODEL} on {count} rows of {DATA}, {cells} cells, {runs} runs of {small} rows, "
        "split 70/10/20. With shuffled labels, the interval of the headline should contain 0.5, "
        "and no layer is worse than another. With the real labels, the headline of a small set is "
        "compared with the score of the same probe on the rows that the set lacks.",
        "table": [
            row("shuffled labels: the interval contains chance", f"{covered:.1%}",
                bar="93 to 97 %", met=0.93 <= covered <= 0.97),
            row("shuffled labels: runs that call a layer worse", f"{false:.1%}",
                bar="at most 5 %", met=false <= 0.05),
            row("shuffled labels: best on test, of which by chance", f"{best:.3f}, {gain:.3f}",
                bar="0.500 without it, within 0.02", met=abs(best - gain - 0.5) < 0.02),
            row("real labels: the confirmation is in the interval", f"{agreed:.1%}",
                bar="at least 93 %", met=agreed >= 0.93),
        ],
    }  # fmt: skip


def read_features(count: int, layers: tuple[int, ...] | None) -> tuple[Features, NDArray[Any]]:
    """The states of every layer and pooler, reduced to their principal components."""
    texts = load_text_set(DATA, limit=count)
    lm = cutaway.open(MODEL)
    found = {}
    for pool in ("last", "mean"):
        states = lm.read(list(texts.texts), layers="all", pool=pool)
        for layer, values in states.items():
            if layers is None or layer in layers:
                centred = values.float() - values.float().mean(0)
                left, size, _ = torch.svd_lowrank(centred, q=WIDTH)
                found[str(layer), pool] = left * size
    return found, np.asarray(texts.labels)


def null_run(features: Features, labels: NDArray[Any], rows: int, seed: int) -> dict[str, float]:
    """One run of the grid on shuffled labels."""
    rng = np.random.default_rng(seed)
    mine = rng.permutation(len(labels))[:rows]
    shuffled = rng.permutation(np.arange(rows) % 2)
    evidence = measured({k: x[mine] for k, x in features.items()}, shuffled, seed)
    top, best = headline_facts(evidence), best_on_test_facts(evidence)
    shown = [one for one in evidence.other_layers.values() if one.kind == "shown"]
    return {
        "covered": top["low"] <= 0.5 <= top["high"],
        "worse": sum(one.difference.interval.mean > 0 for one in shown),
        "best": best["value"],
        "gain": best["gained_by_chance"],
    }


def confirm(features: Features, labels: NDArray[Any], rows: int, seed: int) -> dict[str, float]:
    """A small set's headline, and the score of the same fit on the rows that the set lacks."""
    order = np.random.default_rng(seed).permutation(len(labels))
    mine, rest = order[:rows], order[rows:]
    evidence = measured({k: x[mine] for k, x in features.items()}, labels[mine], seed)
    top = headline_facts(evidence)
    (small,) = fixed_split(labels[mine], seed)
    fresh = Split(0, mine[small.train], mine[small.val], rest)
    ((layer, pool, name),) = evidence.choices()
    (outcome,) = fit(features[layer, pool], labels, (fresh,), name)
    return {"covered": top["low"] <= outcome.metrics[METRIC] <= top["high"]}


def measured(features: Features, labels: NDArray[Any], seed: int) -> Evidence:
    """The scores of the whole grid on one split."""
    splits = fixed_split(labels, seed)
    blocks = assign_blocks([one.test for one in splits], len(labels))
    return Evidence(METRIC, tuple(cells(features, labels, splits, blocks)), repeats=(0,))


def fixed_split(labels: NDArray[Any], seed: int) -> tuple[Split, ...]:
    """One split into parts drawn at random."""
    sizes = [round(share * len(labels)) for share in PARTS[:2]]
    names = np.repeat(["train", "dev", "test"], [*sizes, len(labels) - sum(sizes)])
    parts = np.random.default_rng([seed, 1]).permutation(names)
    return split(labels, SplitPlan(protocol="fixed"), task="binary", parts=parts)


def cells(
    features: Features, labels: NDArray[Any], splits: tuple[Split, ...], blocks: NDArray[Any]
) -> Iterator[ProbeScore]:
    """Every cell's test and validation scores."""
    for (layer, pool), x in features.items():
        for name in CLASSIFIERS:
            (one,) = fit(x, labels, splits, name)
            rows = one.outputs.row_scores(blocks[splits[0].test], int(blocks.max()) + 1, METRIC)
            repeat = RepeatMetrics.of(splits[0], one.metrics, {METRIC: rows})
            seen = ((one.validation.value(metric),) for metric in (METRIC, "auc"))
            value, drawn = one.metrics[METRIC], resampling_info([repeat], METRIC)
            yield ProbeScore((value,), drawn, layer, pool, name, *seen)


def fit(x: torch.Tensor, labels: NDArray[Any], splits: tuple[Split, ...], name: str) -> list[Any]:
    """One classifier on these splits."""
    return probe_splits(x, labels, splits, name, task="binary", classes=("0", "1"))
