"""Sample distinct sentences from documents."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from cutaway.core.errors import BadData, BadSpec
from cutaway.core.textset import TextSet
from cutaway.data.generator_options import make_rng
from cutaway.data.load import load_text_set
from cutaway.data.sentence_splitter import split_paragraph, splitter_version

Documents = str | Path | TextSet | Iterable[str]


def sample_sentences(
    source: Documents,
    n: int,
    seed: int = 0,
    *,
    shortest: int = 4,
    longest: int = 60,
    offline: bool = False,
    revision: str | None = None,
) -> TextSet:
    """Sample `n` distinct sentences of `shortest` to `longest` words.

    One random sentence is taken from each document in random order, then another, so that long
    documents don't dominate.
    """
    if n < 1 or not 1 <= shortest <= longest:
        raise BadSpec(
            f"n must be at least 1 and shortest at most longest, got n={n}, shortest={shortest}, "
            f"longest={longest}."
        )
    documents, name = _documents(source, offline, revision)
    sample: dict[str, None] = {}
    for sentence in _round_robin(documents, make_rng(seed)):
        # Only tokens with a letter or digit count as words, so rulers and the like are skipped.
        size = sum(any(map(str.isalnum, token)) for token in sentence.split())
        if shortest <= size <= longest:
            sample.setdefault(sentence)
        if len(sample) == n:
            break
    else:
        raise BadData(
            f"{name} has {len(sample)} different sentences of {shortest} to {longest} words, "
            f"got n={n}. Request fewer, or give more text."
        )
    meta = {"source": name, "seed": seed, "splitter": splitter_version()}
    return TextSet(name=f"sentences of {name}", texts=tuple(sample), meta=meta)


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, each on one line; a blank line always ends a sentence."""
    paragraphs = (" ".join(part.split()) for part in text.replace("\r\n", "\n").split("\n\n"))
    return [sentence for part in paragraphs if part for sentence in split_paragraph(part)]


def _documents(source: Documents, offline: bool, revision: str | None) -> tuple[list[str], str]:
    if isinstance(source, str | Path | TextSet):
        loaded = load_text_set(source, as_task="text", offline=offline, revision=revision)
        return list(loaded.texts), loaded.name
    documents = list(source)
    for number, text in enumerate(documents, start=1):
        if not isinstance(text, str):
            raise BadData(f"Document {number} is {text!r}, expected a string.")
    return documents, "given"


def _round_robin(documents: list[str], rng: np.random.Generator) -> Iterator[str]:
    """One random sentence of each document in random order, then another, until none is left."""
    rest: list[list[str]] = []
    for i in rng.permutation(len(documents)):
        sentences = split_sentences(documents[i])
        if sentences:
            shuffled = [sentences[j] for j in rng.permutation(len(sentences))]
            yield shuffled.pop()
            rest.append(shuffled)
    while rest:
        rest = [sentences for sentences in rest if sentences]
        for sentences in rest:
            yield sentences.pop()
