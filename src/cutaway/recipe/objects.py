"""Python objects in place of names: models, text sets, data frames, classifiers.

Specs hold only names, so that they can be saved. An object given from Python gets a name made from
its fingerprint, and is passed beside the spec in a table of objects by name.

Models and data sets of one run have unique names, because its rows refer to them by name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from cutaway.core.digest import digest_json, digest_text
from cutaway.core.errors import BadSpec
from cutaway.core.textset import TextSet

Objects = dict[str, Any]
MODEL_FIELDS = frozenset({"model", "base", "tuned"})
"""Fields that take models of transformers, with their tokenizers."""


def name_objects(
    options: Mapping[str, Any], fields: Iterable[str], *, single: Iterable[str] = ()
) -> tuple[dict[str, Any], Objects]:
    """The options with every object in `fields` replaced by a name, and the objects by name.

    Fields in `single` take one value; BadSpec for a list of several.
    """
    alone = frozenset(single)
    objects: Objects = {}
    named = dict(options)
    for field in fields:
        given = named.get(field)
        if given is not None:
            one = _is_model_pair(given) or not isinstance(given, (list, tuple))
            many = [given] if one else list(given)
            if field in MODEL_FIELDS:
                many = [_as_model(value, named.get("bos", "auto")) for value in many]
            names = [_register(one, objects) for one in many]
            named[field] = _single_name(field, names) if field in alone else names
    return named, objects


def _single_name(field: str, names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    raise BadSpec(
        f"{field} takes one, got {len(names)}: {', '.join(names)[:80]}. Give one of them; "
        "sentences go in as {'text': [...]}, a data frame or a TextSet."
    )


def _as_model(value: Any, bos: str) -> Any:
    """A model of transformers as an LM; names and open models as they are."""
    if isinstance(value, str | Path) or _is_model(value):
        return value
    # Imported here because only models in memory need it.
    from cutaway.models.load import open_model

    return open_model(value, bos=bos)


def _is_model_pair(value: Any) -> bool:
    """Whether a value is (model, tokenizer): one model, not two."""
    modules = [hasattr(one, "named_parameters") for one in value] if _is_pair(value) else []
    return modules == [True, False] and not isinstance(value[1], str | Path | dict)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def _register(value: Any, objects: Objects) -> str:
    if isinstance(value, str | Path):
        return str(value)
    name = _object_name(value)
    objects[name] = value
    return name


def _object_name(value: Any) -> str:
    """A name that changes when the object does."""
    if isinstance(value, TextSet):
        return f"{value.name}#{value.digest[:8]}"
    if isinstance(value, dict):
        return f"{value.get('name', 'dict')}#{digest_json(value)[:8]}".replace(",", " ")
    if _is_model(value):
        # Its weights may have been changed since it was opened, or since the last verb.
        return f"{value.name}#{value.refresh_digest().short_id[:8]}"
    digest = getattr(value, "digest", None)
    if isinstance(digest, str):
        return f"{value.name}#{digest[:8]}"
    # Imported here because only objects without a digest need it.
    from cutaway.recipe.object_fingerprint import fingerprint

    kind = value.__name__ if isinstance(value, type) else type(value).__name__
    return f"{own_name(value) or kind}#{digest_text(fingerprint(value))[:8]}".replace(",", " ")


def own_name(value: Any) -> str:
    """The `name` that an object's author gave it; empty without one."""
    name = getattr(value, "name", None)
    return " ".join(name.split()) if isinstance(name, str) else ""


def shown_names(names: Iterable[str], objects: Objects) -> dict[str, str]:
    """How results show each of `names`, all different: objects by their own `name`, if any."""
    shown: dict[str, str] = {}
    for name in names:
        wanted = own_name(objects.get(name)) or name
        shown[name] = _free_name(wanted, set(shown.values()))
    return shown


def _is_model(value: Any) -> bool:
    # Imported here because this module is loaded before torch is needed.
    from cutaway.models.lm import LM

    return isinstance(value, LM)


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
