"""Unique names for the models and data sets of one run, whose rows are told apart by name.

Two files in different folders may have the same name: the second becomes `reviews (2)`. The same
model or data set given twice is refused.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from cutaway.core.errors import BadSpec

Named = TypeVar("Named")


def with_unique_names(
    many: Iterable[Named], identity: Callable[[Named], str], *, option: str
) -> Iterator[Named]:
    """Yield each item, a dataclass with a `name`, renamed if an earlier one has its name.

    BadSpec, naming the option, when two items have the same identity.
    """
    seen: dict[str, str] = {}
    for one in many:
        who, given = identity(one), _name(one)
        if who in seen:
            also = "" if seen[who] == given else f", first as {seen[who]!r}"
            raise BadSpec(f"{option} has {given!r} twice{also}. Give each once.")
        seen[who] = _free_name(given, set(seen.values()))
        yield one if seen[who] == given else replace(one, name=seen[who])  # type: ignore[type-var]


def _name(one: Any) -> str:
    return str(one.name)


def _free_name(name: str, taken: set[str]) -> str:
    """The name, with a number if it is taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name} ({number})"
    return free
