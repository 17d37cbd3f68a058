"""A form from a spec: one widget per field, its docstring as help, its bounds kept."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import streamlit as st
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from streamlit.delta_generator import DeltaGenerator

from cutaway.core.errors import BadSpec
from cutaway.core.spec import Spec
from cutaway.run.specs import Common

# The app decides these itself, or they make no sense in a form.
NOT_ASKED = frozenset({"runs", "engine", "out"})
Values = dict[str, Any]
Draw = Callable[[str, FieldInfo, str], Any]


@dataclass(frozen=True)
class Filled:
    """What the reader filled in, and a place under each field for what is wrong with it."""

    values: Values
    places: dict[str, DeltaGenerator]


def form(cls: type[Spec], first: Sequence[str], *, key: str) -> Filled:
    """A spec's form: the fields named `first` (and those needed) on top, the others folded away."""
    asked = [name for name in cls.model_fields if name not in NOT_ASKED]
    needed = [name for name in asked if cls.model_fields[name].is_required()]
    top = list(dict.fromkeys([*[name for name in first if name in asked], *needed]))
    shared = [name for name in asked if name in Common.model_fields and name not in top]
    own = [name for name in asked if name not in top and name not in shared]
    filled_in = Filled({}, {})
    _columns(cls, top, key, filled_in)
    with st.expander("More options"):
        _columns(cls, own, key, filled_in)
    with st.expander("Where and how it runs"):
        _columns(cls, shared, key, filled_in)
    return filled_in


def _columns(cls: type[Spec], names: Sequence[str], key: str, filled_in: Filled) -> None:
    for pair in zip_longest(names[::2], names[1::2]):
        for column, name in zip(st.columns(2), pair, strict=True):
            if name is not None:
                with column.container(gap="xsmall"):
                    info = cls.model_fields[name]
                    filled_in.values[name] = field(name, info, f"{key}-{name}")
                    filled_in.places[name] = st.empty()


def field(name: str, info: FieldInfo, key: str) -> Any:
    """The widget of one field, chosen by its type."""
    kind, _ = inner(info.annotation)
    origin = get_origin(kind)
    draw = WIDGETS.get(origin if origin in WIDGETS else kind, _text)
    return draw(name, info, key)


def inner(annotation: Any) -> tuple[Any, bool]:
    """The type inside `X | None`, and whether None is allowed."""
    if get_origin(annotation) in (Union, UnionType):
        kinds = [one for one in get_args(annotation) if one is not NoneType]
        return kinds[0], len(kinds) < len(get_args(annotation))
    return annotation, False


def label(name: str, info: FieldInfo) -> str:
    """A field's name on the form; a star where it must be filled in."""
    return name.replace("_", " ").capitalize() + (" *" if info.is_required() else "")


def default(info: FieldInfo) -> Any:
    """The field's default; None where there is none."""
    value = info.get_default(call_default_factory=True)
    return None if value is PydanticUndefined else value


def bound(info: FieldInfo, name: str) -> Any:
    """A bound the field declares (`ge`, `le`); None without one."""
    return next((getattr(m, name) for m in info.metadata if hasattr(m, name)), None)


def _help(info: FieldInfo) -> str:
    return re.sub(r"([\\`*_\[\]|<>$:~])", r"\\\1", info.description or "")


def _choice(name: str, info: FieldInfo, key: str) -> Any:
    kind, optional = inner(info.annotation)
    options = list(get_args(kind))
    chosen = default(info)
    index = options.index(chosen) if chosen in options else None if optional else 0
    return st.selectbox(label(name, info), options, index=index, help=_help(info), key=key)


def _switch(name: str, info: FieldInfo, key: str) -> bool:
    return st.toggle(label(name, info), value=bool(default(info)), help=_help(info), key=key)


def _whole(name: str, info: FieldInfo, key: str) -> Any:
    return st.number_input(
        label(name, info), value=default(info), min_value=bound(info, "ge"),
        max_value=bound(info, "le"), step=1, help=_help(info), key=key, placeholder="not set",
    )  # fmt: skip


def _number(name: str, info: FieldInfo, key: str) -> Any:
    return st.number_input(
        label(name, info), value=default(info), min_value=bound(info, "ge"),
        max_value=bound(info, "le"), format="%g", help=_help(info), key=key, placeholder="not set",
    )  # fmt: skip


def _text(name: str, info: FieldInfo, key: str) -> str | None:
    text = st.text_input(label(name, info), value=default(info) or "", help=_help(info), key=key)
    return text.strip() or None


def _several(name: str, info: FieldInfo, key: str) -> list[str] | None:
    """A list, as text: commas between names, semicolons where an entry has commas itself."""
    shown = "; ".join(map(str, default(info) or ()))
    text = st.text_input(
        label(name, info), value=shown, key=key, help=f"{_help(info)} Put ; between several."
    )
    return [part.strip() for part in text.split(";") if part.strip()] or None


WIDGETS: Mapping[Any, Draw] = {
    Literal: _choice,
    bool: _switch,
    int: _whole,
    float: _number,
    tuple: _several,
    str: _text,
}


def given(cls: type[Spec], values: Values) -> Values:
    """The values that were given: an empty box means the default, or that it is missing."""
    return {k: v for k, v in values.items() if v is not None or _takes_none(cls, k)}


def _takes_none(cls: type[Spec], name: str) -> bool:
    return inner(cls.model_fields[name].annotation)[1]


def stay_inside(values: Values, place: Path) -> None:
    """BadSpec when a form names a file outside the folder the app was started in."""
    for name, value in values.items():
        for one in value if isinstance(value, list) else [value]:
            for piece in one.split(",") if isinstance(one, str) else ():
                _inside(name, piece.strip(), place)


def _inside(name: str, text: str, place: Path) -> None:
    path = Path(text).expanduser()
    there = path if path.is_absolute() else place / path
    try:
        outside = there.exists() and not there.resolve().is_relative_to(place.resolve())
    except (OSError, ValueError):
        # A name no disk can hold is no path; the recipe will say what it makes of it.
        return
    if outside:
        raise BadSpec(
            f"{name} {text!r} lies outside {str(place)!r}, which is all this form may read. "
            "Copy it there, or use the command line."
        )


def by_field(message: str, names: Sequence[str]) -> dict[str, str]:
    """What a refusal says of each field; a sentence that names several, or none, is left out."""
    found: dict[str, str] = {}
    for sentence in re.split(r"(?<=[.?])\s+(?=[A-Za-z])", message):
        named = [name for name in names if re.search(rf"\b{re.escape(name)}s?\b", sentence)]
        if len(named) == 1:
            found[named[0]] = f"{found.get(named[0], '')} {sentence}".strip()
    return found
