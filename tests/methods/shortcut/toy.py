"""Texts and options that the tests of shortcut share."""

from cutaway.core.textset import TextSet
from tests.tiny import toy_language

TEXTS = TextSet("toy", tuple(toy_language(240)))
OTHER = TextSet(
    "other", tuple(t for t in toy_language(200, seed=9) if t not in set(TEXTS.texts))[:40]
)
EVERY_KIND = {"intercept": True, "ridge": "auto", "rank": 8, "tuned": 30, "parts": True}
KINDS = ("id", "mat", "affine", "ridge", "lowrank", "tuned")
