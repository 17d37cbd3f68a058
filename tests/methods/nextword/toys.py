"""Toy data and options that the tests of nextword share."""

import numpy as np

from cutaway.console import Console
from cutaway.core.textset import TextSet
from tests.tiny import toy_sentiment

PROMPT = " , so i"
WORDS = {"class_words": ["hate", "love"], "subset_words": ["hate", "love", "film", "zzzz"]}
QUIET = Console(quiet=True)


def toy_set(n: int = 120, seed: int = 0) -> TextSet:
    """Sentences that end before the verb of feeling, and whether they are happy."""
    sentences, labels = toy_sentiment(n, seed=seed)
    texts = tuple(text.split(" , so")[0] for text in sentences)
    return TextSet("toy", texts, np.asarray(labels), "binary", ("sad", "happy"))


TEXTS = toy_set()
