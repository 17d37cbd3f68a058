"""Which weights: masks as sorted places by name, and the exact choice of the top ones."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway.core.errors import BadData, BadSpec

Params = Mapping[str, Tensor]
WeightIndices = Int[Tensor, " m"]
ScoreFn = Callable[[str], Tensor]
# Scores looked at together: small enough for the cache, large enough to be worth a call.
SCORE_CHUNK = 1 << 18
# Scores passed over together when none of them is high enough.
ROW_SIZE = 512
# Scores held besides the best ones before the others are dropped.
SPARE_CAPACITY = 1 << 13


@dataclass(frozen=True, eq=False)
class Mask:
    """Chosen weights: for each name the sorted places in the flattened tensor, none empty."""

    places: Mapping[str, WeightIndices]

    @property
    def size(self) -> int:
        """How many weights are chosen."""
        return sum(len(places) for places in self.places.values())

    def same(self, other: "Mask") -> bool:
        """Whether both choose the same weights."""
        return set(self.places) == set(other.places) and all(
            torch.equal(places, other.places[name]) for name, places in self.places.items()
        )


def mask_size(sparsity: float, total: int) -> int:
    """How many of `total` weights a sparsity keeps; BadSpec when that rounds to none."""
    if not 0 < sparsity <= 1:
        raise BadSpec(f"sparsity must lie in (0, 1], got {sparsity!r}.")
    keep = round(sparsity * total)
    if keep < 1:
        raise BadSpec(
            f"sparsity {sparsity!r} of {total:,} weights rounds to no weight at all: "
            f"give at least {1 / total:.1e}."
        )
    return keep


def top_mask(names: Sequence[str], score: ScoreFn, keep: int) -> Mask:
    """Exactly `keep` places with the highest scores over all names together.

    Equal scores: the earlier name, then the earlier place. Scores are asked for name by name and
    looked at piece by piece, so nothing of their whole size is ever held.
    """
    if keep < 1:
        _need_valid_size(keep, sum(score(name).numel() for name in names))
    return _collect_top(names, score, keep).mask(names)


def score_threshold(names: Sequence[str], score: ScoreFn, keep: int) -> float:
    """A score with exactly `keep` above it (fewer only where scores are equal there)."""
    pool = _collect_top(names, score, keep + 1)
    if pool.seen <= keep:
        return -float("inf") if pool.seen < keep else pool.lowest(keep) - 1.0
    return (pool.lowest(keep) + pool.lowest(keep + 1)) / 2


def _collect_top(names: Sequence[str], score: ScoreFn, keep: int) -> "_TopCollector":
    pool = _TopCollector(keep)
    for number, name in enumerate(names):
        flat = score(name).detach().reshape(-1)
        for start in range(0, len(flat), SCORE_CHUNK):
            pool.add(number, start, flat[start : start + SCORE_CHUNK].float())
    return pool


def scores_from(scores: Params) -> ScoreFn:
    """Scores that are there already, by name."""
    return lambda name: scores[name]


def random_mask(
    sizes: Mapping[str, int], keep: int, *, rng: torch.Generator, first: ScoreFn | None = None
) -> Mask:
    """Exactly `keep` places, each as likely as any other; those where `first` is 1 before all."""

    def score(name: str) -> Tensor:
        drawn = torch.rand(sizes[name], generator=rng)
        return drawn if first is None else drawn + first(name).reshape(-1).to(drawn)

    return top_mask(list(sizes), score, keep)


def proportional_sizes(sizes: Mapping[str, int], keep: int) -> dict[str, int]:
    """`keep` dealt out in proportion to the sizes, exactly, the largest remainders first."""
    total = sum(sizes.values())
    _need_valid_size(keep, total)
    exact = {name: keep * size / total for name, size in sizes.items()}
    dealt = {name: int(value) for name, value in exact.items()}
    left = keep - sum(dealt.values())
    for name in sorted(sizes, key=lambda n: (dealt[n] - exact[n], n))[:left]:
        dealt[name] += 1
    return dealt


def union_mask(masks: Iterable[Mask]) -> Mask:
    """Every place that is in one of the masks."""
    held: dict[str, list[Tensor]] = {}
    for mask in masks:
        for name, places in mask.places.items():
            held.setdefault(name, []).append(places)
    return Mask({name: torch.unique(torch.cat(found)) for name, found in held.items()})


def intersection_size(one: Mask, other: Mask) -> int:
    """How many places both masks have."""
    return sum(
        int(torch.isin(places, other.places[name]).sum())
        for name, places in one.places.items()
        if name in other.places
    )


def overlap_matrix(masks: Sequence[Mask]) -> Float[Tensor, "skill skill"]:
    """|i and j| / |j| for every pair: the share of skill j's weights that skill i has too."""
    for mask in masks:
        if mask.size == 0:
            raise BadData("An empty mask has no overlap with anything.")
    return torch.tensor([[intersection_size(i, j) / j.size for j in masks] for i in masks])


def _indices_above(scores: Tensor, bar: float) -> Tensor:
    """The places of scores above the bar, in order; BadData when one is NaN.

    A row of them whose highest isn't above it is passed over, which most are once the bar is high.
    """
    whole = len(scores) // ROW_SIZE * ROW_SIZE
    rows, rest = scores[:whole].view(-1, ROW_SIZE), scores[whole:]
    highest = rows.amax(1)
    # The highest of some numbers is NaN if one of them is.
    if bool(highest.isnan().any()) or bool(rest.isnan().any()):
        raise BadData("Scores of weights are NaN: the model or its loss is broken.")
    if bar == -float("inf"):
        return torch.arange(len(scores), device=scores.device)
    hot = (highest > bar).nonzero().reshape(-1)
    inside = (rows[hot] > bar).nonzero()
    places = hot[inside[:, 0]] * ROW_SIZE + inside[:, 1]
    return torch.cat([places, (rest > bar).nonzero().reshape(-1) + whole])


class _TopCollector:
    """The best places so far, in the order of names and places, and the score to beat."""

    def __init__(self, keep: int) -> None:
        self.keep, self.seen, self.bar = keep, 0, -float("inf")
        self.held: list[tuple[Tensor, Tensor, Tensor]] = []
        self.count = 0

    def add(self, number: int, start: int, scores: Tensor) -> None:
        """Take what beats the bar: an equal score comes later and loses."""
        self.seen += len(scores)
        places = _indices_above(scores, self.bar)
        self.held.append((scores[places], torch.full_like(places, number), places + start))
        self.count += len(places)
        # Often enough for a high bar, seldom enough for few sorts.
        if self.count > 2 * self.keep + SPARE_CAPACITY:
            self._reduce()

    def _reduce(self) -> None:
        scores, numbers, places = (torch.cat(part) for part in zip(*self.held, strict=True))
        if len(scores) > self.keep:
            self.bar = float(torch.topk(scores, self.keep, sorted=False).values.min())
            above = scores > self.bar
            ties = (scores == self.bar).nonzero().reshape(-1)
            above[ties[: self.keep - int(above.sum())]] = True
            scores, numbers, places = scores[above], numbers[above], places[above]
        self.held, self.count = [(scores, numbers, places)], len(scores)

    def lowest(self, keep: int) -> float:
        """The lowest of the `keep` best scores."""
        scores = torch.cat([part[0] for part in self.held])
        return float(torch.topk(scores, keep, sorted=False).values.min())

    def mask(self, names: Sequence[str]) -> Mask:
        """The places held, by name."""
        _need_valid_size(self.keep, self.seen)
        self._reduce()
        _, numbers, places = self.held[0]
        found = {n: places[numbers == i].cpu() for i, n in enumerate(names)}
        return Mask({name: chosen for name, chosen in found.items() if len(chosen)})


def _need_valid_size(keep: int, total: int) -> None:
    if not 1 <= keep <= total:
        raise BadSpec(f"A mask keeps 1 to {total:,} of {total:,} weights, got {keep:,}.")
