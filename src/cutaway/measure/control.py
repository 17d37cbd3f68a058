"""The control task of a data set: random labels by word.

Control tasks (Hewitt and Liang 2019, "Designing and Interpreting Probes with Control Tasks"): each
word type gets a random label; a probe that learns those as well as the real labels shows its own
memory, not the model's knowledge. For whole texts the label depends on the last word that at least
MIN_TEXTS_PER_WORD texts contain. Not simply the last word: in reviews and news only 36 to 79 % of
the test rows end in a word that ends a training row, so the control would be hard for want of
examples and every probe would look selective. Of the last shared words, 74 to 98 % occur in
training. Late words, because the usual `last` pooling is next to them. If the set holds words out
(the parts of generated sets share no content word), the control words are held out too: a task
whose words are new in the test rows must not be compared with one whose words were seen.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadData, Mismatch
from cutaway.measure.baselines import split_words
from cutaway.measure.splits import Split

MIN_TEXTS_PER_WORD = 10
HELD_OUT_EXCESS = 0.5
"""A set holds words out if more than this share of the words that could be in several of its parts
are in one: 0.66 to 0.97 in generated sets of 60 to 1,200 rows, at most 0.27 in natural ones."""


def control_words(
    texts: Sequence[str], parts: NDArray[np.str_] | None = None, *, shared: int = MIN_TEXTS_PER_WORD
) -> list[str]:
    """The word that determines each text's control label; empty for texts without words.

    `parts` are the fixed parts of the rows, if these are the splits. If they hold words out, so
    that the words of the test rows don't occur in training, the control words are such words too.
    """
    words = [split_words(text) for text in texts]
    spread = Counter(word for row in words for word in set(row) if word[0].isalnum())
    apart = set() if parts is None else _held_out_words(words, parts, spread)
    own = Counter({word: count for word, count in spread.items() if word in apart})
    return [
        _last_shared_word(row, own if apart.intersection(row) else spread, shared) for row in words
    ]


def _held_out_words(
    words: Sequence[list[str]], parts: NDArray[np.str_], spread: Counter[str]
) -> set[str]:
    """The words of one part only, if the set holds words out; otherwise none."""
    names, counts = np.unique(parts, return_counts=True)
    where = [Counter(w for row, p in zip(words, parts, strict=True) if p == n for w in set(row))
             for n in names]  # fmt: skip
    single = {word: max(c[word] for c in where) == count for word, count in spread.items()}
    several = [word for word, count in spread.items() if count > 1]
    if not several:
        return set()
    # A word of k texts is in one part by chance with the sum of the parts' shares to the power k.
    powers = np.array([spread[word] for word in several])[:, None]
    chance = float(((counts / len(parts)) ** powers).sum(axis=1).mean())
    found = float(np.mean([single[word] for word in several]))
    held = found - chance > HELD_OUT_EXCESS * (1 - chance)
    return {word for word, one in single.items() if one} if held else set()


@dataclass(frozen=True, eq=False)
class ControlTask:
    """Random labels that depend on nothing but one word of each text."""

    labels: NDArray[Any]
    words: NDArray[np.int64]
    """The number of each text's control word."""

    def seen(self, split: Split) -> float:
        """The share of the test rows whose control word occurs in a training row."""
        return float(np.isin(self.words[split.test], self.words[split.train]).mean())


def control_task(
    texts: Sequence[str],
    labels: NDArray[Any],
    *,
    seed: int,
    parts: NDArray[np.str_] | None = None,
) -> ControlTask:
    """The control task of these texts; `parts` as in `control_words`.

    Class labels are assigned so that each class keeps about its number of rows, and the control has
    the chance level of the task; other labels are sampled from the rows.
    """
    if len(texts) != len(labels):
        raise Mismatch(f"{len(texts)} texts and {len(labels)} labels: each text needs one.")
    given = control_words(texts, parts)
    words, place, count = np.unique(given, return_inverse=True, return_counts=True)
    if len(words) < 2:
        raise BadData(
            f"All texts share the control word {str(words[0])!r}, so a control task is not "
            "possible. Leave out the baseline 'control'."
        )
    rng = np.random.default_rng(seed)
    assign = (
        _assign_by_quota if labels.ndim == 1 and labels.dtype.kind in "iub" else _assign_at_random
    )
    return ControlTask(assign(labels, count, rng)[place], place)


def _last_shared_word(row: list[str], spread: Counter[str], shared: int) -> str:
    words = [word for word in row if word in spread] or row[-1:] or [""]
    return next((word for word in reversed(words) if spread[word] >= shared), words[-1])


def _assign_by_quota(
    labels: NDArray[Any], count: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[Any]:
    """One class per word, sampled in proportion to the rows that its class has left."""
    classes, left = np.unique(labels, return_counts=True)
    quota = left.astype(np.float64)
    given = np.empty(len(count), dtype=np.int64)
    # The most frequent words first, while the quotas are large; ties in random order.
    for word in np.lexsort((rng.random(len(count)), -count)):
        bounds = np.cumsum(np.maximum(quota, 1e-9))
        given[word] = min(np.searchsorted(bounds, rng.random() * bounds[-1]), len(classes) - 1)
        quota[given[word]] -= count[word]
    return classes[given]


def _assign_at_random(
    labels: NDArray[Any], count: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[Any]:
    """The label of a random row per word."""
    return labels[rng.integers(len(labels), size=len(count))]
