"""A seeded, deduplicated sample of sentences out of documents."""

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
    """`n` distinct sentences of `shortest` to `longest` words from random documents.

    Documents come in random order, one random sentence of each at a time, so that long ones
    don't take over; the same seed gives the same sentences.
    """
    if n < 1 or not 1 <= shortest <= longest:
        raise BadSpec(
            f"n must be at least 1 and shortest at most longest, got n={n}, shortest={shortest}, "
            f"longest={longest}."
        )
    documents, name = _documents(source, offline, revision)
    found: dict[str, None] = {}
    for sentence in _round_robin(documents, make_rng(seed)):
        # Headings and rulers are made of marks: only tokens with a letter or digit are words.
        size = sum(any(map(str.isalnum, token)) for token in sentence.split())
        if shortest <= size <= longest:
            found.setdefault(sentence)
        if len(found) == n:
            break
    else:
        raise BadData(
            f"{name} has {len(found)} different sentences of {shortest} to {longest} words, "
            f"got n={n}. Ask for fewer, or give more text."
        )
    meta = {"source": name, "seed": seed, "splitter": splitter_version()}
    return TextSet(name=f"sentences of {name}", texts=tuple(found), meta=meta)


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, each on one line."""
    # Line ends inside a paragraph are layout; an empty line always ends a sentence.
    paragraphs = (" ".join(part.split()) for part in text.replace("\r\n", "\n").split("\n\n"))
    return [sentence for part in paragraphs if part for sentence in split_paragraph(part)]


def _documents(source: Documents, offline: bool, revision: str | None) -> tuple[list[str], str]:
    if isinstance(source, str | Path | TextSet):
        loaded = load_text_set(source, as_task="text", offline=offline, revision=revision)
        return list(loaded.texts), loaded.name
    documents = list(source)
    odd = next((i for i, text in enumerate(documents) if not isinstance(text, str)), None)
    if odd is not None:
        raise BadData(f"Document {odd + 1} is {documents[odd]!r}, expected a string.")
    return documents, "given"


def _round_robin(documents: list[str], rng: np.random.Generator) -> Iterator[str]:
    """One random sentence of each document in random order, then another, until none is left."""
    waiting: list[list[str]] = []
    for i in rng.permutation(len(documents)):
        sentences = split_sentences(documents[i])
        if sentences:
            shuffled = [sentences[j] for j in rng.permutation(len(sentences))]
            yield shuffled.pop()
            waiting.append(shuffled)
    while waiting:
        waiting = [sentences for sentences in waiting if sentences]
        for sentences in waiting:
            yield sentences.pop()
