"""Generate sentences from templates and a lexicon that is split between the parts.

A template is a sentence with {slots}. The entries of a slot fit every class (`slots`), determine
one class (`marked`), or have one form per class in brackets: `[paints|painted] the fence`.
Entries that share a content word are in the same part.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field, field_validator

from cutaway.core.errors import BadSpec
from cutaway.core.spec import Spec
from cutaway.core.textset import TextSet
from cutaway.data.generator_options import make_rng
from cutaway.data.lexicon_split import split_lexicon, word_set

MAX_TRIES = 200

Rng = np.random.Generator
Choices = dict[tuple[str, int], list[str]]

_SLOT = re.compile(r"\{([a-z_]+)\d*\}")
_FORMS = re.compile(r"\[([^\]]*)\]")
_ARTICLE = re.compile(r"\b([Aa]) (?=(\w+))")
# With exceptions such as "a university" and "an hour".
_VOWEL_SOUND = re.compile(
    r"(?!uni|use|usu|eu|one|once|ubi)[aeiou]|honest|hour|heir|honou?r", re.IGNORECASE
)


class Grammar(Spec):
    """Templates, words that fit every class, and words that determine the class."""

    name: str
    """The name after `gen:`."""
    classes: tuple[str, ...]
    """Class names, in the order of their indices."""
    templates: tuple[str, ...]
    """Sentences with {slots}; {slot1} and {slot2} are different entries of one slot."""
    function_words: frozenset[str]
    """The words that all parts may share: of, the, with, ..."""
    slots: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Entries that fit every class, or have one form per class in brackets."""
    marked: dict[str, dict[str, tuple[str, ...]]] = Field(default_factory=dict)
    """By class, the entries that determine it."""

    @field_validator("templates", mode="before")
    @classmethod
    def _lines(cls, value: Any) -> Any:
        lines = map(str.strip, value.split("\n")) if isinstance(value, str) else value
        return tuple(filter(None, lines))

    @field_validator("slots", mode="before")
    @classmethod
    def _entries(cls, slots: Any) -> Any:
        return {name: parse_entries(value) for name, value in slots.items()}

    @field_validator("marked", mode="before")
    @classmethod
    def _marked_entries(cls, classes: Any) -> Any:
        return {name: cls._entries(slots) for name, slots in classes.items()}

    @field_validator("function_words", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        return frozenset(value.lower().split()) if isinstance(value, str) else value


@dataclass(frozen=True)
class LexiconEntry:
    """One entry of a slot: its form for each class, None for classes it doesn't fit."""

    slot: str
    spellings: tuple[str | None, ...]

    def words(self) -> set[str]:
        """All words of all forms."""
        return {word for spelling in self.spellings if spelling for word in word_set(spelling)}

    def groups(self) -> list[tuple[str, int]]:
        """The (slot, class) pairs that it fits, in the order of the classes."""
        return [(self.slot, i) for i, spelling in enumerate(self.spellings) if spelling]


def generate_from_grammar(
    grammar: Grammar, source: str, sizes: dict[str, int], seed: int
) -> TextSet:
    """Distinct sentences, `sizes[part]` for each part, balanced over the classes."""
    rng = make_rng(seed)
    lexicons = split_lexicon(lexicon(grammar), grammar.function_words, rng)
    rows = [
        row
        for part, size in sizes.items()
        for row in _sample_part(grammar, lexicons[part], size, part, rng)
    ]
    return TextSet(
        name=source,
        texts=tuple(text for text, _ in rows),
        labels=np.array([label for _, label in rows], dtype=np.int64),
        task="binary" if len(grammar.classes) == 2 else "multiclass",
        classes=grammar.classes,
        parts=np.repeat(np.array(list(sizes)), list(sizes.values())),
        meta={
            "source": source,
            "seed": seed,
            "lexicon": {part: _vocabulary(entries) for part, entries in lexicons.items()},
        },
    )


def parse_entries(value: Any) -> Any:
    """Split a text at commas and line ends."""
    if not isinstance(value, str):
        return value
    return tuple(dict.fromkeys(e.strip() for e in re.split(r"[,\n]", value) if e.strip()))


def lexicon(grammar: Grammar) -> list[LexiconEntry]:
    """All entries of a grammar with their forms."""
    classes = range(len(grammar.classes))
    entries = [
        LexiconEntry(slot, tuple(_class_form(entry, i) for i in classes))
        for slot, texts in grammar.slots.items()
        for entry in texts
    ]
    for i, name in enumerate(grammar.classes):
        for slot, texts in grammar.marked.get(name, {}).items():
            entries += [
                LexiconEntry(slot, tuple(e if i == j else None for j in classes)) for e in texts
            ]
    return entries


def _class_form(entry: str, number: int) -> str:
    return _FORMS.sub(lambda match: match.group(1).split("|")[number], entry)


def _vocabulary(entries: Sequence[LexiconEntry]) -> list[str]:
    return sorted({word for entry in entries for word in entry.words()})


def _sample_part(
    grammar: Grammar, entries: Sequence[LexiconEntry], size: int, part: str, rng: Rng
) -> list[tuple[str, int]]:
    """The sentences of one part with their classes, in random order."""
    choices: Choices = defaultdict(list)
    for entry in entries:
        for slot, i in entry.groups():
            choices[slot, i].append(str(entry.spellings[i]))
    seen: dict[str, int] = {}
    for row in range(size):
        label = row % len(grammar.classes)
        for _ in range(MAX_TRIES):
            text = _sample_sentence(grammar, choices, label, rng)
            if text not in seen:
                seen[text] = label
                break
        else:
            raise BadSpec(
                f"gen:{grammar.name} has words for about {row} different sentences in {part!r}, "
                f"got {size}. Request fewer: n, dev and test in gen:{grammar.name}?n=..."
            )
    rows = list(seen.items())
    return [rows[i] for i in rng.permutation(len(rows))]


def _sample_sentence(grammar: Grammar, choices: Choices, label: int, rng: Rng) -> str:
    template = grammar.templates[rng.integers(len(grammar.templates))]
    fillers: dict[str, list[str]] = {}
    for slot in dict.fromkeys(_SLOT.findall(template)):
        known, count = choices[slot, label], len(re.findall(rf"\{{{slot}\d*\}}", template))
        fillers[slot] = [known[i] for i in rng.choice(len(known), size=count, replace=False)]
    filled = _SLOT.sub(lambda match: fillers[match.group(1)].pop(), template)
    return fix_articles(filled)


def fix_articles(text: str) -> str:
    """The sentence with `a` and `an` corrected and a capital first letter."""
    text = _ARTICLE.sub(lambda m: m[1] + ("n " if _VOWEL_SOUND.match(m[2]) else " "), text)
    return text[0].upper() + text[1:]
