"""Rows of weights as points in the plane, those of several models on one map."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

WeightProjection = Literal["pca", "tsne"]


def project_rows(
    rows: Mapping[str, NDArray[np.float64]], way: WeightProjection, *, seed: int = 0
) -> dict[str, NDArray[np.float64]]:
    """(n, 2) points of each model's rows; rows that are alike lie close together."""
    whole = np.concatenate(list(rows.values()))
    points = _project(whole - whole.mean(axis=0), way, seed)
    cuts = np.cumsum([len(part) for part in rows.values()])[:-1]
    return dict(zip(rows, np.split(points, cuts), strict=True))


def _project(values: NDArray[np.float64], way: WeightProjection, seed: int) -> NDArray[np.float64]:
    if way == "pca":
        return np.asarray(PCA(2, random_state=seed).fit_transform(values))
    nearby = float(min(30, max(2, (len(values) - 1) // 3)))
    tsne = TSNE(2, perplexity=nearby, init="pca", random_state=seed, max_iter=500)
    return np.asarray(tsne.fit_transform(values), dtype=np.float64)
