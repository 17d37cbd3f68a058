"""Sampled rows of attention weights, and their 2-D maps over several models."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from cutaway.methods.inject.maths.weight_maps import WeightProjection, project_rows
from cutaway.models.lm import LM
from cutaway.models.weight_location import weight_locator

MAX_ROWS = 60
WEIGHT_PROJECTIONS: tuple[WeightProjection, ...] = ("pca", "tsne")
WeightSample = dict[str, Any]
"""`of`: the model's name; `rows`: rows of weights by layer number."""


def outer_layers(lm: LM) -> list[int]:
    """The first, middle and last block."""
    return sorted({1, (lm.layers + 1) // 2, lm.layers})


def sample_weights(name: str, lm: LM, weights: Mapping[str, Tensor]) -> WeightSample:
    """Evenly spaced rows of an attention weight of the first, middle and last block."""
    locate, rows = weight_locator(lm), {}
    for layer in outer_layers(lm):
        names = [n for n, w in weights.items() if locate(n) == (layer, "attn") and w.ndim == 2]
        if names:
            values = weights[names[0]].float()
            chosen = np.linspace(0, len(values) - 1, min(MAX_ROWS, len(values))).astype(int)
            rows[str(layer)] = values[chosen].cpu().numpy().round(6).tolist()
    return {"of": name, "rows": rows}


def weight_maps(samples: Iterable[WeightSample], *, seed: int) -> list[dict[str, Any]]:
    """One map per layer and projection; rows of the sample `base` come first."""
    by_model = {one["of"]: one["rows"] for one in sorted(samples, key=lambda one: one["of"])}
    base, maps = by_model.pop("base", {}), []
    for layer, rows in base.items():
        layer_rows = {"base": np.array(rows)}
        layer_rows |= {name: np.array(s[layer]) for name, s in by_model.items() if layer in s}
        for way in WEIGHT_PROJECTIONS:
            points = project_rows(layer_rows, way, seed=seed)
            shown = {name: p.round(4).tolist() for name, p in points.items()}
            maps.append({"layer": int(layer), "way": way, "points": shown})
    return maps
