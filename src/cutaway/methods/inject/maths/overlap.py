"""Fisher information by group of weights, its largest entries, and the overlap of two Fishers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor

from cutaway.core.float64 import to_float64
from cutaway.core.params import WeightGroup, check_same_parameters

Params = Mapping[str, Tensor]


def fisher_mass(fisher: Params, locate: Callable[[str], WeightGroup]) -> dict[WeightGroup, float]:
    """The share of the Fisher's sum in each group of weights; shares add up to 1."""
    sums: dict[WeightGroup, float] = {}
    for name, value in fisher.items():
        group = locate(name)
        sums[group] = sums.get(group, 0.0) + float(to_float64(value).sum())
    total = sum(sums.values())
    return {group: value / total if total else 0.0 for group, value in sorted(sums.items())}


@dataclass(frozen=True)
class LargestEntries:
    """The largest entries of a Fisher in descending order: weight names, flat indices, values."""

    names: tuple[str, ...]
    indices: NDArray[np.int64]
    values: NDArray[np.float64]

    def keys(self) -> set[tuple[str, int]]:
        """The entries without their values."""
        return set(zip(self.names, self.indices.tolist(), strict=True))


def largest_entries(fisher: Params, k: int) -> LargestEntries:
    """The k largest entries over all weights, without a copy of the Fisher."""
    entries: list[tuple[float, str, int]] = []
    for name, value in fisher.items():
        best = value.reshape(-1).topk(min(k, value.numel()))
        entries += zip(best.values.tolist(), [name] * k, best.indices.tolist(), strict=False)
        entries = sorted(entries, key=lambda entry: (-entry[0], entry[1], entry[2]))[:k]
    return LargestEntries(
        tuple(name for _, name, _ in entries),
        np.array([index for _, _, index in entries], dtype=np.int64),
        np.array([value for value, _, _ in entries]),
    )


def values_at(fisher: Params, entries: LargestEntries) -> NDArray[np.float64]:
    """The values of another Fisher at these entries."""
    flat = {name: fisher[name].reshape(-1) for name in set(entries.names)}
    pairs = zip(entries.names, entries.indices.tolist(), strict=True)
    return np.array([float(flat[name][index]) for name, index in pairs])


def jaccard(one: LargestEntries, other: LargestEntries) -> float:
    """The Jaccard index: shared entries over all entries of either."""
    mine, theirs = one.keys(), other.keys()
    return len(mine & theirs) / max(len(mine | theirs), 1)


def rank_correlation(
    one: Params, other: Params, *, rng: np.random.Generator, sample: int = 200_000
) -> float:
    """Spearman correlation of two Fishers over sampled entries, in proportion to weight sizes."""
    check_same_parameters(one, other=other)
    count_all = sum(value.numel() for value in one.values())
    mine, theirs = [], []
    for name, value in one.items():
        count = min(value.numel(), max(1, round(sample * value.numel() / count_all)))
        chosen = torch.from_numpy(rng.integers(value.numel(), size=count)).to(value.device)
        mine.append(value.reshape(-1)[chosen].cpu().double().numpy())
        theirs.append(other[name].reshape(-1)[chosen].cpu().double().numpy())
    left, right = np.concatenate(mine), np.concatenate(theirs)
    if left.min() == left.max() or right.min() == right.max():
        return 0.0
    return float(spearmanr(left, right).statistic)


def moving_average(values: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """The mean over a window around each value; windows are shorter at the ends."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    half = window // 2
    index = np.arange(len(values))
    low = np.maximum(index - half, 0)
    high = np.minimum(index + half + 1, len(values))
    return np.asarray((sums[high] - sums[low]) / (high - low))
