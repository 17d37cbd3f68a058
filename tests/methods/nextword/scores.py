"""Rows of nextword runs made from right and wrong answers, as a run would have measured them."""

import numpy as np

from cutaway.measure.jackknife import assign_blocks, pseudo_values
from cutaway.measure.repeats import RepeatMetrics, RowScores, resampling_info
from cutaway.methods.nextword.rows import NextwordCell, score_rows

TRAIN = 400


def measured_cell(
    features: str, right: np.ndarray, validation: list[float] | None = None, prompt: str = ""
) -> tuple[list[dict], dict]:
    """The rows of a cell and how it was measured; `right` (repeats, test rows) is 0 or 1.

    With one repeat the test rows are fixed; with several, each has its own.
    """
    cell = NextwordCell("m", "sst2", prompt, features)
    repeats, n = right.shape
    blocks = assign_blocks([np.arange(n)], n)
    found = []
    for repeat, one in enumerate(right):
        metrics = {"accuracy": float(one.mean())}
        if validation is not None:
            metrics["accuracy_val"] = validation[repeat]
        values = pseudo_values(lambda rows, one=one: float(one[rows].mean()), blocks, 20)
        tested = n if repeats == 1 else None
        scores = {"accuracy": RowScores(values, n)}
        found.append(RepeatMetrics(repeat, TRAIN, 0, n, metrics, tested=tested, rows=scores))
    return score_rows(cell, found), {cell: resampling_info(found, "accuracy")}


def measured_cells(*cells: tuple[list[dict], dict]) -> tuple[list[dict], dict]:
    """Several cells together."""
    rows = [row for cell, _ in cells for row in cell]
    return rows, {key: info for _, infos in cells for key, info in infos.items()}


def answers(share: float, n: int = 400, seed: int = 0, repeats: int = 1) -> np.ndarray:
    """Right and wrong answers, of which exactly this share is right in each repeat."""
    rng = np.random.default_rng(seed)
    right = (np.arange(n) < round(share * n)).astype(float)
    return np.array([rng.permutation(right) for _ in range(repeats)])
