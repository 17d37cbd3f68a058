"""Every sentence that a verdict can hold: what it claims, by which rule and which test.

The tables are files named `sentences.toml` next to the code that writes the sentences. A sentence
is listed as it is printed, with names in braces in place of the numbers:

    [twin-adds]
    says = "The same model with random weights reaches {score}: pretraining adds {difference}."
    claims = "difference"
    rule = "the difference is significant at 5 %"
    test = "paired, over the repeats"

The page docs/verdicts.md is made from these tables, a test compares them with the code in both
directions, and the null suite (`make null`) counts how often each claim is false.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from cutaway.core.errors import BadSpec
from cutaway.core.spec import parse_toml

PACKAGE = Path(__file__).parents[1]
TABLE_NAME = "sentences.toml"
CLAIMS = {
    "difference": "a difference or an effect",
    "absence": "no difference larger than a margin",
    "interval": "a true value lies in an interval",
    "guarantee": "a bound with a stated confidence",
    "conclusion": "a difference, no difference larger than a margin, or that the rows can't tell",
    "": "numbers as measured, or what could not be measured",
}
"""What a sentence can claim; a sentence without a claim only reports."""
# How `measure.conclusions.describe` words the conclusions that are no difference.
ABSENT, UNKNOWN = "no difference larger than", "can't tell"
PLACEHOLDER = re.compile(r"\{(\w+)\}")
# Runs with several models or data sets begin each sentence with their names.
PREFIX = r"(?:.+? on .+?: )?"


@dataclass(frozen=True)
class SentenceKind:
    """One kind of sentence of one method's verdicts."""

    method: str
    name: str
    says: tuple[str, ...]
    """The sentence as printed, in its variants; {names} in place of numbers and names."""
    rule: str
    """When it is printed."""
    claims: str = ""
    """A key of CLAIMS."""
    test: str = ""
    """The statistical test or interval that a claim rests on."""
    phrases: Mapping[str, str] = field(default_factory=dict)
    """Of a sentence with several conclusions, the words that mark a difference and an absence."""

    @property
    def key(self) -> str:
        """Its name among all sentences: "probe twin-adds"."""
        return f"{self.method} {self.name}"

    @cached_property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """One pattern per variant."""
        return tuple(re.compile(_pattern(text)) for text in self.says)

    def match(self, sentence: str) -> dict[str, str] | None:
        """What is in place of the names, or None for another sentence."""
        for pattern in self.patterns:
            if found := pattern.fullmatch(sentence):
                return found.groupdict()
        return None


def _pattern(text: str) -> str:
    parts = PLACEHOLDER.split(text)
    named = {name: f"(?P<{name}>.*?)" for name in parts[1::2]}
    return PREFIX + "".join(
        named[part] if place % 2 else re.escape(part) for place, part in enumerate(parts)
    )


@cache
def sentence_kinds() -> dict[str, SentenceKind]:
    """Every kind of sentence, by its key, in the order of the tables."""
    found = {}
    for path in sorted(PACKAGE.rglob(TABLE_NAME)):
        for name, row in parse_toml(path.read_text(encoding="utf-8")).items():
            kind = read_kind(path.parent.name, name, row)
            found[kind.key] = kind
    return found


def read_kind(method: str, name: str, row: Mapping[str, Any]) -> SentenceKind:
    """A row of a table; BadSpec when something is missing."""
    says = row.get("says", ())
    kind = SentenceKind(
        method, name, (says,) if isinstance(says, str) else tuple(says), row.get("rule", ""),
        row.get("claims", ""), row.get("test", ""), row.get("phrases", {}),
    )  # fmt: skip
    if kind.claims not in CLAIMS:
        allowed = ", ".join(repr(claim) for claim in CLAIMS if claim)
        raise BadSpec(f"{kind.key}: claims must be one of {allowed}, got {kind.claims!r}.")
    if not kind.says or not kind.rule or bool(kind.test) != bool(kind.claims):
        raise BadSpec(f"{kind.key}: needs `says` and `rule`, and `test` if and only if it claims.")
    return kind


def kind_of(sentence: str, method: str) -> SentenceKind | None:
    """The kind of a sentence: of those that match, the one with most words of its own."""
    of_method = [kind for kind in sentence_kinds().values() if kind.method == method]
    matching = [
        (len(PLACEHOLDER.sub("", text)), kind)
        for kind in of_method
        for text, pattern in zip(kind.says, kind.patterns, strict=True)
        if pattern.fullmatch(sentence)
    ]
    return max(matching, key=lambda one: one[0])[1] if matching else None


def claims_of(kind: SentenceKind, sentence: str) -> frozenset[str]:
    """What this sentence claims: of a kind that can conclude three ways, those that it did."""
    if kind.claims != "conclusion":
        return frozenset({kind.claims} - {""})
    if kind.phrases:
        return frozenset(claim for claim, text in kind.phrases.items() if text in sentence)
    if ABSENT in sentence:
        return frozenset({"absence"})
    return frozenset() if UNKNOWN in sentence else frozenset({"difference"})
