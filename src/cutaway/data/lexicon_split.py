"""A lexicon dealt out between train, dev and test, so that relatives stay together."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np

# How much of each slot's words each part gets.
LEXICON_SHARES = {"train": 0.6, "dev": 0.15, "test": 0.25}

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_ENDINGS = re.compile(r"(ingly|edly|fully|ness|ful|less|ings?|ies|ied|ed|es|ly|ers?|s|e|y)$")


class SupportsWords(Protocol):
    """Anything with words that serves some (slot, class) groups."""

    def words(self) -> set[str]:
        """All its words."""
        ...

    def groups(self) -> list[tuple[str, int]]:
        """The (slot, class) pairs it serves, always in the same order."""
        ...


EntryT = TypeVar("EntryT", bound=SupportsWords)


def word_set(text: str) -> set[str]:
    """The words of a text, in small letters."""
    return {word.lower() for word in _WORD.findall(text)}


def stem(word: str) -> str:
    """What a word shares with its relatives, roughly: delighted, delightful -> delight."""
    bare = word
    while len(cut := _ENDINGS.sub("", bare)) >= 3 and cut != bare:
        bare = cut
    return bare


def split_lexicon(
    entries: Sequence[EntryT], shared: frozenset[str], rng: np.random.Generator
) -> dict[str, list[EntryT]]:
    """The entries of each part; no word outside `shared`, nor a relative, is in two parts."""
    families = _related_entries(entries, shared)
    order = sorted(rng.permutation(len(families)), key=lambda i: -len(families[i]))
    total = Counter(group for entry in entries for group in entry.groups())
    have: dict[str, Counter[tuple[str, int]]] = {part: Counter() for part in LEXICON_SHARES}
    dealt: dict[str, list[EntryT]] = {part: [] for part in LEXICON_SHARES}
    for i in order:
        groups = Counter(group for entry in families[i] for group in entry.groups())
        part = max(LEXICON_SHARES, key=lambda p: _deficit(p, groups, total, have[p]))
        dealt[part] += families[i]
        have[part] += groups
    return dealt


def _deficit(
    part: str,
    groups: Counter[tuple[str, int]],
    total: Counter[tuple[str, int]],
    have: Counter[tuple[str, int]],
) -> float:
    """How far this part lies behind its share in the groups that a family serves."""
    return sum(
        (LEXICON_SHARES[part] * total[g] - have[g]) / (LEXICON_SHARES[part] * total[g])
        for g in groups
    )


def _related_entries(entries: Sequence[EntryT], shared: frozenset[str]) -> list[list[EntryT]]:
    """The entries that hang together by a common stem, directly or through others."""
    root = list(range(len(entries)))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    first: dict[str, int] = {}
    for i, entry in enumerate(entries):
        for word in entry.words() - shared:
            root[find(i)] = find(first.setdefault(stem(word), i))
    families: dict[int, list[EntryT]] = defaultdict(list)
    for i, entry in enumerate(entries):
        families[find(i)].append(entry)
    return list(families.values())
