"""Texts as counts of their words: what the text baselines see.

Counting is done once per dataset; what a split may know of it (which words there are, how rare
they are) is decided per split, from its train rows alone.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import CountVectorizer

# Words keep their apostrophes; every other mark is a word of its own, or a text of emoji
# would have none.
WORD_PATTERN = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


@dataclass(frozen=True, eq=False)
class WordCounts:
    """How often each term occurs in each text: (n, terms)."""

    counts: Any
    """A sparse matrix by rows."""
    single: NDArray[np.bool_]
    """Which terms are single words; the others are pairs of neighbours."""

    def known_to(self, rows: NDArray[np.integer], *, pairs: bool) -> NDArray[np.int64]:
        """The terms that occur in these rows, with or without pairs of words."""
        occurs = np.zeros(len(self.single), dtype=bool)
        occurs[self.counts[rows].indices] = True
        return np.flatnonzero(occurs if pairs else occurs & self.single)


def split_words(text: str) -> list[str]:
    """The words and marks of a text, in lower case."""
    return WORD_PATTERN.findall(text.lower())


def count_words(texts: Sequence[str], pairs: Sequence[str] | None = None) -> WordCounts:
    """The counts of words and of pairs of neighbours in each text.

    The second texts of pairs are counted apart from the first, so that a word's side counts.
    """
    first = _count_terms(texts)
    if pairs is None:
        return first
    second = _count_terms(pairs)
    counts = csr_matrix(hstack([first.counts, second.counts], format="csr"))
    return WordCounts(counts, np.concatenate([first.single, second.single]))


def _count_terms(texts: Sequence[str]) -> WordCounts:
    # A term that every text has keeps scikit-learn from refusing texts without words; it is
    # dropped again below.
    counter = CountVectorizer(analyzer=lambda text: ["", *_terms(text)], dtype=np.float64)
    counts = counter.fit_transform(texts)
    terms = counter.get_feature_names_out()
    kept = np.flatnonzero(terms != "")
    return WordCounts(
        csr_matrix(counts[:, kept]), np.array([" " not in t for t in terms[kept]], bool)
    )


def _terms(text: str) -> list[str]:
    words = split_words(text)
    return [*words, *(f"{a} {b}" for a, b in pairwise(words))]
