"""Look up names in tables, with "did you mean" suggestions."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

from cutaway.core.errors import UnknownName

Row = TypeVar("Row")


def suggestion(name: str, known: Iterable[str]) -> str:
    """`Did you mean 'mean'? ` for a name close to a known one, else an empty string."""
    folded = {k.lower(): k for k in known}
    near = get_close_matches(str(name).lower(), list(folded), n=1, cutoff=0.6)
    return f"Did you mean {folded[near[0]]!r}? " if near else ""


def lookup(table: Mapping[str, Row], name: str, *, kind: str) -> Row:
    """The row called `name`; UnknownName with a suggestion and the known names otherwise."""
    if name in table:
        return table[name]
    known = ", ".join(sorted(table)) or "none"
    raise UnknownName(f"Unknown {kind} {name!r}. {suggestion(name, table)}Known: {known}.")
