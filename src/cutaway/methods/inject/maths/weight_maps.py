"""2-D projections of rows of weights, with several models in one map."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

WeightProjection = Literal["pca", "tsne"]
Rows = NDArray[np.float64]


def project_rows(
    rows: Mapping[str, Rows], way: WeightProjection, *, seed: int = 0
) -> dict[str, Rows]:
    """(n, 2) points of each model's rows, from one projection of all of them."""
    values = np.concatenate(list(rows.values()))
    values = values - values.mean(axis=0)
    if way == "pca":
        points = PCA(2, random_state=seed).fit_transform(values)
    else:
        perplexity = float(min(30, max(2, (len(values) - 1) // 3)))
        tsne = TSNE(2, perplexity=perplexity, init="pca", random_state=seed, max_iter=500)
        points = tsne.fit_transform(values)
    cuts = np.cumsum([len(part) for part in rows.values()])[:-1]
    parts = np.split(np.asarray(points, dtype=np.float64), cuts)
    return dict(zip(rows, parts, strict=True))
