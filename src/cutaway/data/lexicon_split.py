"""Split a lexicon between train, dev and test; related words stay in one part."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np

# Each part's share of the words of every slot.
LEXICON_SHARES = {"train": 0.6, "dev": 0.15, "test": 0.25}

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_ENDINGS = re.compile(r"(ingly|edly|fully|ness|ful|less|ings?|ies|ied|ed|es|ly|ers?|s|e|y)$")


class SupportsWords(Protocol):
    """An entry with words that fits some (slot, class) groups."""

    def words(self) -> set[str]:
        """All its words."""

    def groups(self) -> list[tuple[str, int]]:
        """The (slot, class) pairs that it fits, always in the same order."""


EntryT = TypeVar("EntryT", bound=SupportsWords)


def word_set(text: str) -> set[str]:
    """The words of a text, in lower case."""
    return {word.lower() for word in _WORD.findall(text)}


def stem(word: str) -> str:
    """A rough stem of a word: delighted, delightful -> delight."""
    while len(shorter := _ENDINGS.sub("", word)) >= 3 and shorter != word:
        word = shorter
    return word


def split_lexicon(
    entries: Sequence[EntryT], shared: frozenset[str], rng: np.random.Generator
) -> dict[str, list[EntryT]]:
    """The entries of each part; only words in `shared` (or their stems) occur in two parts."""
    related = _related_entries(entries, shared)
    order = sorted(rng.permutation(len(related)), key=lambda i: -len(related[i]))
    total = Counter(group for entry in entries for group in entry.groups())
    counts: dict[str, Counter[tuple[str, int]]] = {part: Counter() for part in LEXICON_SHARES}
    parts: dict[str, list[EntryT]] = {part: [] for part in LEXICON_SHARES}
    for i in order:
        groups = Counter(group for entry in related[i] for group in entry.groups())
        part = max(LEXICON_SHARES, key=lambda p: _deficit(p, groups, total, counts[p]))
        parts[part] += related[i]
        counts[part] += groups
    return parts


def _deficit(
    part: str,
    groups: Counter[tuple[str, int]],
    total: Counter[tuple[str, int]],
    counts: Counter[tuple[str, int]],
) -> float:
    """How much of its share of these groups this part still lacks."""
    share = LEXICON_SHARES[part]
    return sum((share * total[g] - counts[g]) / (share * total[g]) for g in groups)


def _related_entries(entries: Sequence[EntryT], shared: frozenset[str]) -> list[list[EntryT]]:
    """Group the entries that share a stem, directly or through other entries (union-find)."""
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
    groups: dict[int, list[EntryT]] = defaultdict(list)
    for i, entry in enumerate(entries):
        groups[find(i)].append(entry)
    return list(groups.values())
