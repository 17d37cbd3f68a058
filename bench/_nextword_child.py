"""One fit on the whole p in a process of its own: python -m bench._nextword_child ROWS E VOCAB."""

import json
import sys
import time

import numpy as np
import psutil
import torch

from cutaway.methods.nextword.maths.classify import ClassifierSettings
from cutaway.methods.nextword.maths.full_p import fit_p
from cutaway.methods.nextword.maths.readout import OutputHead
from cutaway.recipe.result import process_peak_mb


def main(rows: int, width: int, vocab: int, classes: int, steps: int) -> dict[str, float]:
    """Memory above what f, Phi and the libraries take, and seconds per look at p."""
    rng = torch.Generator().manual_seed(0)
    f = torch.randn(rows, width, generator=rng)
    output = OutputHead(torch.randn(vocab, width, generator=rng) * (3 / width**0.5))
    y = np.random.default_rng(0).integers(classes, size=rows)
    looked = 0

    def done(count: int) -> None:
        nonlocal looked
        looked += count

    # What torch takes for its own workspaces is no part of the solver.
    _ = output(f[:64])
    before = psutil.Process().memory_info().rss / 2**20
    start = time.perf_counter()
    fit_p(
        f,
        output,
        y,
        [np.arange(rows)],
        ClassifierSettings(classes, max_iter=steps),
        solver="stream",
        done=done,
    )
    seconds = time.perf_counter() - start
    return {
        "rows": rows,
        "above_mb": process_peak_mb() - before,
        "phi_mb": output.phi.nbytes / 2**20,
        "f_mb": f.nbytes / 2**20,
        "looks": looked / rows,
        "seconds_per_look": seconds / (looked / rows),
    }


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:]))))
