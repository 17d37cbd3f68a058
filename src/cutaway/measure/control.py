"""Labels that a probe can only know by heart.

Hewitt and Liang (2019), "Designing and Interpreting Probes with Control Tasks": give each word
type a random label; a probe that learns those as well as the real ones shows its own memory, not
the model's knowledge. `selectivity` is the difference.

For whole texts the label hangs on one word of the text: the last one that at least `SHARED` texts
have. Not simply the last word: in review and news sentences only 36 to 79 % of the test rows end
in a word that ends a train row, so that the control would be hard for want of examples and every
probe would look selective. Of the last shared words 74 to 98 % are met in training, and there are
hundreds of them. Late words, because the usual `last` pooling sits next to them.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadData, Mismatch
from cutaway.measure.strata import shuffle
from cutaway.measure.words import split_words

MIN_TEXTS_PER_WORD = 10


def control_words(texts: Sequence[str], *, shared: int = MIN_TEXTS_PER_WORD) -> list[str]:
    """The word each text's control label hangs on; an empty string for a text without words."""
    words = [split_words(text) for text in texts]
    spread = Counter(word for row in words for word in set(row) if word[0].isalnum())
    return [_last_shared_word(row, spread, shared) for row in words]


def control_labels(texts: Sequence[str], labels: NDArray[Any], *, seed: int) -> NDArray[Any]:
    """Random labels that depend on nothing but each text's control word.

    Class labels are handed out so that each class keeps about its number of rows, and the chance
    level of the control is that of the task; other labels are drawn from the rows.
    """
    if len(texts) != len(labels):
        raise Mismatch(f"{len(texts)} texts and {len(labels)} labels: each text needs one.")
    words, place, count = np.unique(control_words(texts), return_inverse=True, return_counts=True)
    if len(words) < 2:
        raise BadData(
            f"All texts share the control word {str(words[0])!r}, so a control task can't tell "
            "them apart. Leave the control out."
        )
    rng = np.random.default_rng(seed)
    hand_out = (
        _assign_by_quota if labels.ndim == 1 and labels.dtype.kind in "iub" else _assign_at_random
    )
    return hand_out(labels, count, rng)[place]


def selectivity(score: float, control: float) -> float:
    """How much of a score the probe did not get from its own memory."""
    return score - control


def shuffle_labels(labels: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    """The same labels on other rows: what is left is chance."""
    return labels[shuffle(np.arange(len(labels), dtype=np.int64), rng)]


def _last_shared_word(row: list[str], spread: Counter[str], shared: int) -> str:
    words = [word for word in row if word in spread] or row[-1:] or [""]
    return next((word for word in reversed(words) if spread[word] >= shared), words[-1])


def _assign_by_quota(
    labels: NDArray[Any], count: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[Any]:
    """One class per word, drawn from the rows its class still has to give."""
    classes, left = np.unique(labels, return_counts=True)
    quota = left.astype(np.float64)
    given = np.empty(len(count), dtype=np.int64)
    # The commonest words first, while there is room for them; equal ones in a random order.
    for word in np.lexsort((rng.random(len(count)), -count)):
        bounds = np.cumsum(np.maximum(quota, 1e-9))
        given[word] = min(np.searchsorted(bounds, rng.random() * bounds[-1]), len(classes) - 1)
        quota[given[word]] -= count[word]
    return classes[given]


def _assign_at_random(
    labels: NDArray[Any], count: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[Any]:
    """One row's label per word."""
    return labels[rng.integers(len(labels), size=len(count))]
