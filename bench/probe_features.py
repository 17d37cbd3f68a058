"""The logistic path against scikit-learn's on the bundled model's states of real sentences."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from bench.extract_setup import BUNDLED, DATA, opened
from bench.probe_solver import FOLDS, STRENGTHS, Data, compare, lines, scaled
from cutaway.core.textset import TextSet
from cutaway.data.load import load_text_set
from cutaway.extract.activations import extract
from cutaway.extract.request import ExtractionRequest

ROWS, LAYERS = 2_500, (12, 24)


def run(quick: bool, rows: int | None = None, rounds: int = 5) -> dict[str, Any]:
    """Times, accuracies and gradients for each layer's mean-pooled states."""
    texts = _sentences(60 if quick else rows or ROWS)
    found = {name: compare(data, 1 if quick else min(rounds, 3)) for name, data in _sets(texts)}
    return {
        "title": "Probing: solvers on real features",
        "text": f"Mean-pooled states of {len(texts):,} sentences of `{texts.name}`, standardised, "
        f"four fifths to train; {len(STRENGTHS)} C from 1e-4 to 1e4, {FOLDS} folds and the refit. "
        "liblinear is timed once.",
        "table": [line for name, measured in found.items() for line in lines(name, measured)],
        "measured": found,
    }


def _sentences(rows: int) -> TextSet:
    """Review sentences where there are any, else generated ones."""
    folder = os.environ.get(DATA, "").strip()
    real = Path(folder) / "sst2_sentences"
    return load_text_set(
        str(real) if folder and real.is_dir() else f"gen:sentiment?n={rows}", limit=rows
    )


def _sets(texts: TextSet) -> list[tuple[str, Data]]:
    lm = opened(BUNDLED, Path())
    got = extract(lm, texts, ExtractionRequest(layers=LAYERS, pools=("mean",)))
    # The parts of a folder come one after the other: mixed, so that train and test are alike.
    order = np.random.default_rng(0).permutation(len(texts))
    y, n = np.asarray(texts.labels, dtype=int)[order], len(texts) * 4 // 5
    columns = {layer: got.column(layer, "mean").numpy()[order] for layer in LAYERS}
    return [(f"{BUNDLED}, layer {layer}", scaled((x, y, n))) for layer, x in columns.items()]
