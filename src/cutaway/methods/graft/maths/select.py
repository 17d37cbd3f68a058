"""Masks as sorted indices per tensor, and the exact top-k over many tensors."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway.core.errors import BadData, BadSpec

Params = Mapping[str, Tensor]
WeightIndices = Int[Tensor, " m"]
ScoreFn = Callable[[str], Tensor]
# Scores compared at once: small enough for the cache, large enough to amortise a call.
SCORE_CHUNK = 1 << 18
# Scores skipped together when their maximum is too low.
ROW_SIZE = 512
# Scores held in addition to the best before the others are dropped.
SPARE_CAPACITY = 1 << 13


@dataclass(frozen=True, eq=False)
class Mask:
    """Chosen weights: for each name the sorted indices into the flattened tensor, never empty."""

    indices: Mapping[str, WeightIndices]

    @property
    def size(self) -> int:
        """The number of chosen weights."""
        return sum(len(indices) for indices in self.indices.values())

    def same(self, other: "Mask") -> bool:
        """Whether both choose the same weights."""
        return set(self.indices) == set(other.indices) and all(
            torch.equal(indices, other.indices[name]) for name, indices in self.indices.items()
        )


def mask_size(sparsity: float, total: int) -> int:
    """The number of weights that a sparsity keeps of `total`; BadSpec when it rounds to 0."""
    if not 0 < sparsity <= 1:
        raise BadSpec(f"sparsity must be in (0, 1], got {sparsity!r}.")
    keep = round(sparsity * total)
    if keep < 1:
        raise BadSpec(
            f"sparsity {sparsity!r} of {total:,} weights rounds to no weight: "
            f"give at least {1 / total:.1e}."
        )
    return keep


def top_mask(names: Sequence[str], score: ScoreFn, keep: int) -> Mask:
    """The mask of exactly `keep` weights with the highest scores over all names.

    Ties go to the earlier name, then to the lower index. Scores are computed name by name and
    compared in chunks, so scores of all weights are never in memory together.
    """
    if keep < 1:
        _need_valid_size(keep, sum(score(name).numel() for name in names))
    return _collect_top(names, score, keep).mask(names)


def score_threshold(names: Sequence[str], score: ScoreFn, keep: int) -> float:
    """A threshold with exactly `keep` scores above it (fewer only in a tie)."""
    pool = _collect_top(names, score, keep + 1)
    if pool.seen < keep:
        return -float("inf")
    lowest = pool.lowest(keep)
    below = pool.lowest(keep + 1) if pool.seen > keep else -float("inf")
    return lowest - 1.0 if below == -float("inf") else (lowest + below) / 2


def _collect_top(names: Sequence[str], score: ScoreFn, keep: int) -> "_TopCollector":
    pool = _TopCollector(keep)
    for number, name in enumerate(names):
        flat = score(name).detach().reshape(-1)
        for start in range(0, len(flat), SCORE_CHUNK):
            pool.add(number, start, flat[start : start + SCORE_CHUNK].float())
    return pool


def scores_from(scores: Params) -> ScoreFn:
    """A score function over precomputed scores."""
    return lambda name: scores[name]


def random_mask(
    sizes: Mapping[str, int], keep: int, *, rng: torch.Generator, first: ScoreFn | None = None
) -> Mask:
    """A uniformly random mask of `keep` weights; those where `first` is 1 come first."""

    def score(name: str) -> Tensor:
        drawn = torch.rand(sizes[name], generator=rng)
        return drawn if first is None else drawn + first(name).reshape(-1).to(drawn)

    return top_mask(list(sizes), score, keep)


def proportional_sizes(sizes: Mapping[str, int], keep: int) -> dict[str, int]:
    """`keep` split in proportion to the sizes, rounded by largest remainder."""
    total = sum(sizes.values())
    _need_valid_size(keep, total)
    exact = {name: keep * size / total for name, size in sizes.items()}
    counts = {name: int(value) for name, value in exact.items()}
    left = keep - sum(counts.values())
    for name in sorted(sizes, key=lambda n: (counts[n] - exact[n], n))[:left]:
        counts[name] += 1
    return counts


def union_mask(masks: Iterable[Mask]) -> Mask:
    """The weights that are in at least one of the masks."""
    held: dict[str, list[Tensor]] = {}
    for mask in masks:
        for name, indices in mask.indices.items():
            held.setdefault(name, []).append(indices)
    return Mask({name: torch.unique(torch.cat(found)) for name, found in held.items()})


def intersection_size(one: Mask, other: Mask) -> int:
    """The number of weights that are in both masks."""
    return sum(
        int(torch.isin(indices, other.indices[name]).sum())
        for name, indices in one.indices.items()
        if name in other.indices
    )


def overlap_matrix(masks: Sequence[Mask]) -> Float[Tensor, "skill skill"]:
    """|i and j| / |j| for every pair: the share of mask j's weights that mask i has too."""
    for mask in masks:
        if mask.size == 0:
            raise BadData("An empty mask has no overlap with anything.")
    return torch.tensor([[intersection_size(i, j) / j.size for j in masks] for i in masks])


def _indices_above(scores: Tensor, bar: float) -> Tensor:
    """The indices of scores above the bar, in order; BadData when one is NaN.

    Rows of scores whose maximum is not above the bar are skipped, which is most of them.
    """
    whole = len(scores) // ROW_SIZE * ROW_SIZE
    rows, rest = scores[:whole].view(-1, ROW_SIZE), scores[whole:]
    highest = rows.amax(1)
    # amax is NaN if one of the numbers is.
    if bool(highest.isnan().any()) or bool(rest.isnan().any()):
        raise BadData("Scores of weights are NaN: the model or its loss has NaN values.")
    if bar == -float("inf"):
        return torch.arange(len(scores), device=scores.device)
    hot = (highest > bar).nonzero().reshape(-1)
    inside = (rows[hot] > bar).nonzero()
    indices = hot[inside[:, 0]] * ROW_SIZE + inside[:, 1]
    return torch.cat([indices, (rest > bar).nonzero().reshape(-1) + whole])


class _TopCollector:
    """The best weights so far, ordered by name and index, and the score to beat."""

    def __init__(self, keep: int) -> None:
        self.keep, self.seen, self.bar = keep, 0, -float("inf")
        self.held: list[tuple[Tensor, Tensor, Tensor]] = []
        self.count = 0

    def add(self, number: int, start: int, scores: Tensor) -> None:
        """Add scores above the bar; an equal score comes later and loses."""
        self.seen += len(scores)
        indices = _indices_above(scores, self.bar)
        self.held.append((scores[indices], torch.full_like(indices, number), indices + start))
        self.count += len(indices)
        if self.count > 2 * self.keep + SPARE_CAPACITY:
            self._reduce()

    def _reduce(self) -> None:
        scores, numbers, indices = (torch.cat(part) for part in zip(*self.held, strict=True))
        if len(scores) > self.keep:
            self.bar = float(torch.topk(scores, self.keep, sorted=False).values.min())
            above = scores > self.bar
            ties = (scores == self.bar).nonzero().reshape(-1)
            above[ties[: self.keep - int(above.sum())]] = True
            scores, numbers, indices = scores[above], numbers[above], indices[above]
        self.held, self.count = [(scores, numbers, indices)], len(scores)

    def lowest(self, keep: int) -> float:
        """The lowest of the `keep` best scores."""
        scores = torch.cat([part[0] for part in self.held])
        return float(torch.topk(scores, keep, sorted=False).values.min())

    def mask(self, names: Sequence[str]) -> Mask:
        """The best weights as a mask."""
        _need_valid_size(self.keep, self.seen)
        self._reduce()
        _, numbers, indices = self.held[0]
        found = {n: indices[numbers == i].cpu() for i, n in enumerate(names)}
        return Mask({name: chosen for name, chosen in found.items() if len(chosen)})


def _need_valid_size(keep: int, total: int) -> None:
    if not 1 <= keep <= total:
        raise BadSpec(f"A mask keeps 1 to {total:,} of {total:,} weights, got {keep:,}.")
