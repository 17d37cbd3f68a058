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
from cutaway.home import home_path
from cutaway.run.specs import Common

# The app decides these itself, or they make no sense in a form.
NOT_ASKED = frozenset({"runs", "engine"})
# What a run writes besides its result; only into the runs folder.
WRITTEN = frozenset({"out", "html"})
Values = dict[str, Any]
Draw = Callable[[str, FieldInfo, str], Any]


@dataclass(frozen=True)
class Filled:
    """What the reader filled in, and a place under each field for what is wrong with it."""

    values: Values
    places: dict[str, DeltaGenerator]


def form(cls: type[Spec], first: Sequence[str], *, key: str) -> Filled:
    """A spec's form: the fields named `first` (and those needed) on top, the others folded away."""
    asked = [name for name in cls.model_fields if _is_asked(cls, name)]
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


def _is_asked(cls: type[Spec], name: str) -> bool:
    """Whether a form has the field: a file to write only where the recipe needs its name."""
    return name not in NOT_ASKED and (name not in WRITTEN or cls.model_fields[name].is_required())


def _columns(cls: type[Spec], names: Sequence[str], key: str, filled_in: Filled) -> None:
    for pair in zip_longest(names[::2], names[1::2]):
        for column, name in zip(st.columns(2), pair, strict=True):
            if name is not None:
                with column.container(gap="xsmall"):
                    info = cls.model_fields[name]
                    filled_in.values[name] = field(name, info, f"{key}-{name}")
                    filled_in.places[name] = st.empty()


def field(name: str, info: FieldInfo, key: str) -> Any:
    """The widget of one field, chosen by its type; a field of several types is typed in."""
    kind, optional = inner(info.annotation)
    if kind is bool and optional:
        return _yes_or_no(name, info, key)
    if kind is None:
        return _text(name, info, key)
    origin = get_origin(kind)
    draw = WIDGETS.get(origin if origin in WIDGETS else kind, _text)
    return draw(name, info, key)


def inner(annotation: Any) -> tuple[Any, bool]:
    """The type inside `X | None`, and whether None is allowed; None as type for `X | Y`."""
    if get_origin(annotation) in (Union, UnionType):
        kinds = [one for one in get_args(annotation) if one is not NoneType]
        return kinds[0] if len(kinds) == 1 else None, len(kinds) < len(get_args(annotation))
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


def _yes_or_no(name: str, info: FieldInfo, key: str) -> bool | None:
    """A switch that may also be left to the recipe."""
    said = {"yes": True, "no": False}
    chosen = st.selectbox(
        label(name, info), list(said), index=None, help=_help(info), key=key,
        placeholder="by default",
    )  # fmt: skip
    return None if chosen is None else said[chosen]


def _whole(name: str, info: FieldInfo, key: str) -> Any:
    return st.number_input(
        label(name, info), value=default(info), min_value=bound(info, "ge"),
        max_value=bound(info, "le"), step=1, help=_help(info), key=key, placeholder="not set",
    )  # fmt: skip


def _number(name: str, info: FieldInfo, key: str) -> Any:
    # Bounds are often written as whole numbers; the widget wants all of one kind.
    value, low, high = (
        None if one is None else float(one)
        for one in (default(info), bound(info, "ge"), bound(info, "le"))
    )
    return st.number_input(
        label(name, info), value=value, min_value=low, max_value=high, format="%g",
        help=_help(info), key=key, placeholder="not set",
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


def stay_inside(values: Values, places: Sequence[Path]) -> None:
    """BadSpec when a form names a file that lies in none of the folders it may read."""
    for name, value in values.items():
        if name in WRITTEN:
            continue
        for one in value if isinstance(value, list | tuple) else [value]:
            for piece in _pieces(one):
                _inside(name, piece, places)


def _pieces(value: Any) -> list[str]:
    """A value, and every part that could be a path: `a.csv,b.csv`, `base+adapter`, `task=a.csv`."""
    if not isinstance(value, str):
        return []
    parts = {value, *re.split(r"[,+;]", value)}
    parts |= {part.partition("=")[2] for part in parts}
    return [piece.strip() for piece in parts if piece.strip()]


def _inside(name: str, text: str, places: Sequence[Path]) -> None:
    path = home_path(text)
    there = path if path.is_absolute() else places[0] / path
    try:
        outside = there.exists() and not _lies_in(there, places)
    except (OSError, ValueError, RuntimeError):
        # A name no disk can hold is no path; the recipe will say what it makes of it.
        return
    if outside:
        raise BadSpec(
            f"{name} {text!r} lies outside {str(places[0])!r}, which is all this form may read. "
            "Copy it there, or use the command line."
        )


def _lies_in(path: Path, places: Sequence[Path]) -> bool:
    real = path.resolve()
    return any(real.is_relative_to(place.resolve()) for place in places)


def place_written(values: Values, folder: Path) -> Values:
    """The values with every file that is to be written put into the folder; BadSpec if it can't."""
    placed = dict(values)
    for name in WRITTEN & values.keys():
        given = values[name]
        if isinstance(given, str) and given:
            there = folder / home_path(given)
            try:
                stays = _lies_in(there, [folder]) and there.resolve() != folder.resolve()
            except (OSError, ValueError, RuntimeError):
                stays = False
            if not stays:
                raise BadSpec(
                    f"{name} {given!r} leads out of {str(folder)!r}, which is all this form may "
                    "write to. Give a plain name such as 'mine.safetensors'."
                )
            placed[name] = str(there)
    return placed


def by_field(message: str, names: Sequence[str]) -> dict[str, str]:
    """What a refusal says of each field; a sentence that names several, or none, is left out."""
    found: dict[str, str] = {}
    for sentence in re.split(r"(?<=[.?])\s+(?=[A-Za-z])", message):
        named = [name for name in names if re.search(rf"\b{re.escape(name)}s?\b", sentence)]
        if len(named) == 1:
            found[named[0]] = f"{found.get(named[0], '')} {sentence}".strip()
    return found
