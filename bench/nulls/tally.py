"""How often each kind of sentence made a false claim."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from zlib import crc32

from scipy.stats import binom

from cutaway.report.sentences import SentenceKind, claims_of, kind_of, sentence_kinds

BARS = {"difference": 0.05, "absence": 0.05, "interval": 0.07, "guarantee": 0.05}
"""The largest share of false claims; intervals of 95 % are to cover in 93 to 97 of 100 runs."""
SURE = 0.01
"""A count exceeds the bar if a rate at the bar would give so many false claims less often than
this. A test at 5 % that is exact makes 5 % false claims: half of all counts are above that."""
PRINTED = ("conclusion", "interval", "guarantee")
"""Claims whose sentence is printed whatever the result: each one printed counts."""
PERCENT = re.compile(r"interval ([.\d]+)% to ([.\d]+)%")
INTERVAL = re.compile(r"\[([-+.\d]+), ([-+.\d]+)\]")


@dataclass(frozen=True)
class Verdict:
    """The sentences of one run, and the true value of what they estimate."""

    sentences: tuple[str, ...]
    truth: float = float("nan")


@dataclass(frozen=True)
class World:
    """A situation in which claims of some sorts are false by construction."""

    name: str
    """What is null: "shuffled labels"."""
    method: str
    wrong: tuple[str, ...]
    """The sorts of claims that are false (difference, absence), or whose bounds are compared with
    the true value (interval, guarantee)."""
    kinds: tuple[str, ...]
    """The kinds of sentences of the method that are put to the test; `twin*` is several."""
    run: Callable[[int], Verdict]
    """The verdict with this seed."""
    real: bool = False
    """Whether a verb is run, not simulated."""

    @property
    def title(self) -> str:
        """Method and what is null."""
        return f"{self.method}, {self.name}"


@dataclass
class Count:
    """How often a kind of sentence could make a claim, and how often it made a false one."""

    false: int = 0
    runs: int = 0
    example: str = ""

    def add(self, sentences: list[str]) -> None:
        """One more opportunity, with the sentences that made a false claim."""
        self.runs += 1
        self.false += bool(sentences)
        self.example = self.example or "".join(sentences[:1])


Counts = dict[tuple[str, str], Count]
"""By key of the kind and sort of claim."""
Rates = dict[str, dict[str, dict[str, list[int]]]]
"""Key of the kind, sort of claim, name of the world: false claims, runs."""


def tally(world: World, seeds: Iterable[int], counts: Counts) -> Iterator[int]:
    """Count the false claims of a world's runs; yields each seed when it is done."""
    kinds = kinds_tested(world)
    for seed in seeds:
        # Simulated worlds would draw the same numbers with the same seeds.
        apart = 0 if world.real else crc32(world.title.encode())
        verdict = world.run(apart + seed)
        found = [(kind_of(text, world.method), text) for text in verdict.sentences]
        unlisted = [text for kind, text in found if kind is None]
        if unlisted:
            raise LookupError(f"In no sentences.toml of {world.method}: {unlisted[0]}")
        for kind in kinds:
            printed = [text for one, text in found if one == kind]
            for wrong in world.wrong:
                if kind.claims == wrong and wrong not in PRINTED:
                    counts.setdefault((kind.key, wrong), Count()).add(printed)
                elif kind.claims == wrong or (kind.claims == "conclusion" and wrong not in PRINTED):
                    for text in printed:
                        bad = is_false(kind, text, wrong, verdict.truth)
                        counts.setdefault((kind.key, wrong), Count()).add([text] if bad else [])
        yield seed


def kinds_tested(world: World) -> list[SentenceKind]:
    """The kinds of sentences whose claims a world puts to the test."""
    return [
        kind
        for kind in sentence_kinds().values()
        if kind.method == world.method
        and any(fnmatch(kind.name, wanted) for wanted in world.kinds)
        and (kind.claims in world.wrong or kind.claims == "conclusion")
    ]


def is_false(kind: SentenceKind, text: str, wrong: str, truth: float) -> bool:
    """Whether a sentence makes a claim of a sort that is false, or excludes the truth."""
    if wrong not in claims_of(kind, text):
        return False
    fields = kind.match(text) or {}
    if wrong == "interval":
        low, high = _interval(fields)
        return not low <= truth <= high
    if wrong == "guarantee":
        return truth < float(fields["agreement"].rstrip("%")) / 100
    return True


def _interval(fields: dict[str, str]) -> tuple[float, float]:
    if "low" in fields:
        return float(fields["low"]), float(fields["high"])
    if found := PERCENT.search(fields.get("share", "")):
        return float(found[1]) / 100, float(found[2]) / 100
    found = INTERVAL.search(fields.get("value", ""))
    return (float(found[1]), float(found[2])) if found else (float("-inf"), float("inf"))


def merge(kept: Rates, world: World, counts: Counts) -> Rates:
    """The rates with those of one world replaced; kinds that no longer exist are dropped."""
    merged = {
        key: {
            wrong: {
                n: c
                for n, c in by_world.items()
                if (key.split()[0], n) != (world.method, world.name)
            }
            for wrong, by_world in by_claim.items()
        }
        for key, by_claim in kept.items()
        if key in sentence_kinds()
    }
    for (key, wrong), one in counts.items():
        merged.setdefault(key, {}).setdefault(wrong, {})[world.name] = [one.false, one.runs]
    used = {k: {w: by for w, by in claims.items() if by} for k, claims in merged.items()}
    return {key: used[key] for key in sentence_kinds() if used.get(key)}


def totals(rates: Rates) -> dict[tuple[str, str], tuple[int, int]]:
    """False claims and runs of each kind and sort of claim, over all worlds."""
    return {
        (key, wrong): (sum(f for f, _ in by.values()), sum(n for _, n in by.values()))
        for key, by_claim in rates.items()
        for wrong, by in by_claim.items()
    }


def beyond_bar(rates: Rates) -> list[str]:
    """What exceeds the bar by more than chance: a kind over all its worlds, or in one of them."""
    found = [
        f"{key} ({wrong}): {false} of {runs}"
        for (key, wrong), (false, runs) in totals(rates).items()
        if binom.sf(false - 1, runs, BARS[wrong]) < SURE
    ]
    found += [
        f"{key} ({wrong}), {world}: {false} of {runs}"
        for key, by_claim in rates.items()
        for wrong, by in by_claim.items()
        for world, (false, runs) in by.items()
        if binom.sf(false - 1, runs, BARS[wrong]) < SURE
    ]
    return found
