"""The usual spellings of train, dev and test."""

import re

PART_SPELLINGS = {
    "train": ("train", "tr", "training", "trn"),
    "dev": ("dev", "validation", "valid", "val", "va", "development", "eval"),
    "test": ("test", "te", "testing", "tst"),
}

PART_BY_SPELLING = {spelling: part for part, names in PART_SPELLINGS.items() for spelling in names}


def part_from_name(name: str) -> str | None:
    """The part that a split or file belongs to, by its first word: validation_matched is dev."""
    return PART_BY_SPELLING.get(re.split(r"[_\-. ]", name.lower())[0])
