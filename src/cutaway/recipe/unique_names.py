"""Models and sets of one run stand apart in its rows by their names.

Files in two folders, or a model opened twice, may come with one name: the second is called
`reviews (2)` then, in the order they are given. The very same one given twice is refused.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from cutaway.core.errors import BadSpec

Named = TypeVar("Named")


def with_unique_names(
    many: Iterable[Named], identity: Callable[[Named], str], *, option: str
) -> Iterator[Named]:
    """Each of them, one at a time, under a name that none before it has.

    They are dataclasses with a `name`; BadSpec, naming the option, for the same one again.
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
    """The name, numbered where it is taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name} ({number})"
    return free
