"""Which weights: masks as sorted places by name, and the exact choice of the top ones."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway.core.errors import BadData, BadSpec

Params = Mapping[str, Tensor]
Places = Int[Tensor, " m"]
Score = Callable[[str], Tensor]
# Scores looked at together: small enough for the cache, large enough to be worth a call.
CHUNK = 1 << 18
# Scores passed over together when none of them is high enough.
ROW = 512
# Scores held besides the best ones before the others are dropped.
ROOM = 1 << 13


@dataclass(frozen=True, eq=False)
class Mask:
    """Chosen weights: for each name the sorted places in the flattened tensor, none empty."""

    places: Mapping[str, Places]

    @property
    def size(self) -> int:
        """How many weights are chosen."""
        return sum(len(places) for places in self.places.values())

    def same(self, other: "Mask") -> bool:
        """Whether both choose the same weights."""
        return set(self.places) == set(other.places) and all(
            torch.equal(places, other.places[name]) for name, places in self.places.items()
        )


def count(sparsity: float, total: int) -> int:
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


def top(names: Sequence[str], score: Score, keep: int) -> Mask:
    """Exactly `keep` places with the highest scores over all names together.

    Equal scores: the earlier name, then the earlier place. Scores are asked for name by name and
    looked at piece by piece, so nothing of their whole size is ever held.
    """
    if keep < 1:
        _need(keep, sum(score(name).numel() for name in names))
    return _filled(names, score, keep).mask(names)


def border(names: Sequence[str], score: Score, keep: int) -> float:
    """A score with exactly `keep` above it (fewer only where scores are equal there)."""
    pool = _filled(names, score, keep + 1)
    if pool.seen <= keep:
        return -float("inf") if pool.seen < keep else pool.lowest(keep) - 1.0
    return (pool.lowest(keep) + pool.lowest(keep + 1)) / 2


def _filled(names: Sequence[str], score: Score, keep: int) -> "_Pool":
    pool = _Pool(keep)
    for number, name in enumerate(names):
        flat = score(name).detach().reshape(-1)
        for start in range(0, len(flat), CHUNK):
            pool.add(number, start, flat[start : start + CHUNK].float())
    return pool


def of(scores: Params) -> Score:
    """Scores that are there already, by name."""
    return lambda name: scores[name]


def draw(
    sizes: Mapping[str, int], keep: int, *, rng: torch.Generator, first: Score | None = None
) -> Mask:
    """Exactly `keep` places, each as likely as any other; those where `first` is 1 before all."""

    def score(name: str) -> Tensor:
        drawn = torch.rand(sizes[name], generator=rng)
        return drawn if first is None else drawn + first(name).reshape(-1).to(drawn)

    return top(list(sizes), score, keep)


def shares(sizes: Mapping[str, int], keep: int) -> dict[str, int]:
    """`keep` dealt out in proportion to the sizes, exactly, the largest remainders first."""
    total = sum(sizes.values())
    _need(keep, total)
    exact = {name: keep * size / total for name, size in sizes.items()}
    dealt = {name: int(value) for name, value in exact.items()}
    left = keep - sum(dealt.values())
    for name in sorted(sizes, key=lambda n: (dealt[n] - exact[n], n))[:left]:
        dealt[name] += 1
    return dealt


def join(masks: Iterable[Mask]) -> Mask:
    """Every place that is in one of the masks."""
    held: dict[str, list[Tensor]] = {}
    for mask in masks:
        for name, places in mask.places.items():
            held.setdefault(name, []).append(places)
    return Mask({name: torch.unique(torch.cat(found)) for name, found in held.items()})


def common(one: Mask, other: Mask) -> int:
    """How many places both masks have."""
    return sum(
        int(torch.isin(places, other.places[name]).sum())
        for name, places in one.places.items()
        if name in other.places
    )


def overlap(masks: Sequence[Mask]) -> Float[Tensor, "skill skill"]:
    """|i and j| / |j| for every pair: the share of skill j's weights that skill i has too."""
    for mask in masks:
        if mask.size == 0:
            raise BadData("An empty mask has no overlap with anything.")
    return torch.tensor([[common(i, j) / j.size for j in masks] for i in masks])


def _above(scores: Tensor, bar: float) -> Tensor:
    """The places of scores above the bar, in order; BadData when one is NaN.

    A row of them whose highest isn't above it is passed over, which most are once the bar is high.
    """
    whole = len(scores) // ROW * ROW
    rows, rest = scores[:whole].view(-1, ROW), scores[whole:]
    highest = rows.amax(1)
    # The highest of some numbers is NaN if one of them is.
    if bool(highest.isnan().any()) or bool(rest.isnan().any()):
        raise BadData("Scores of weights are NaN: the model or its loss is broken.")
    if bar == -float("inf"):
        return torch.arange(len(scores), device=scores.device)
    hot = (highest > bar).nonzero().reshape(-1)
    inside = (rows[hot] > bar).nonzero()
    places = hot[inside[:, 0]] * ROW + inside[:, 1]
    return torch.cat([places, (rest > bar).nonzero().reshape(-1) + whole])


class _Pool:
    """The best places so far, in the order of names and places, and the score to beat."""

    def __init__(self, keep: int) -> None:
        self.keep, self.seen, self.bar = keep, 0, -float("inf")
        self.held: list[tuple[Tensor, Tensor, Tensor]] = []
        self.count = 0

    def add(self, number: int, start: int, scores: Tensor) -> None:
        """Take what beats the bar: an equal score comes later and loses."""
        self.seen += len(scores)
        places = _above(scores, self.bar)
        self.held.append((scores[places], torch.full_like(places, number), places + start))
        self.count += len(places)
        # Often enough for a high bar, seldom enough for few sorts.
        if self.count > 2 * self.keep + ROOM:
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
        _need(self.keep, self.seen)
        self._reduce()
        _, numbers, places = self.held[0]
        found = {n: places[numbers == i].cpu() for i, n in enumerate(names)}
        return Mask({name: chosen for name, chosen in found.items() if len(chosen)})


def _need(keep: int, total: int) -> None:
    if not 1 <= keep <= total:
        raise BadSpec(f"A mask keeps 1 to {total:,} of {total:,} weights, got {keep:,}.")
