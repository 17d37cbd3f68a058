"""Forms made from specs: one widget per field, with its docstring as help and its bounds."""

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
from cutaway.core.spec import Spec, check_text
from cutaway.home import expand_path
from cutaway.recipe.options import RunOptions

# Set by the app itself.
HIDDEN_FIELDS = frozenset({"runs", "engine"})
# Files that a run writes in addition to its result; only into the runs folder.
OUTPUT_FIELDS = frozenset({"out", "html"})
# What separates a path from the rest of a value: base+adapter, task=file, hf:id, gen:x?n=1&m=2.
SEPARATORS = r"[,;+=:?&\n]"
MAX_PATH = 4096
FormValues = dict[str, Any]
DrawWidget = Callable[[str, FieldInfo, str], Any]


@dataclass(frozen=True)
class FilledForm:
    """The values of a form, and a slot below each field for its error message."""

    values: FormValues
    slots: dict[str, DeltaGenerator]


def draw_form(cls: type[Spec], first: Sequence[str], *, key: str) -> FilledForm:
    """Draw a spec's form: the fields in `first` and required ones on top, the others folded."""
    shown = [name for name in cls.model_fields if is_shown(cls, name)]
    required = [name for name in shown if cls.model_fields[name].is_required()]
    top = list(dict.fromkeys([*[name for name in first if name in shown], *required]))
    shared = [name for name in shown if name in RunOptions.model_fields and name not in top]
    own = [name for name in shown if name not in top and name not in shared]
    form = FilledForm({}, {})
    _columns(cls, top, key, form)
    with st.expander("More options"):
        _columns(cls, own, key, form)
    with st.expander("Where and how it runs"):
        _columns(cls, shared, key, form)
    return form


def is_shown(cls: type[Spec], name: str) -> bool:
    """Whether the form has the field; an output file only if the verb requires one."""
    return name not in HIDDEN_FIELDS and (
        name not in OUTPUT_FIELDS or cls.model_fields[name].is_required()
    )


def _columns(cls: type[Spec], names: Sequence[str], key: str, form: FilledForm) -> None:
    for pair in zip_longest(names[::2], names[1::2]):
        for column, name in zip(st.columns(2), pair, strict=True):
            if name is not None:
                with column.container(gap="xsmall"):
                    info = cls.model_fields[name]
                    form.values[name] = draw_field(name, info, f"{key}-{name}")
                    form.slots[name] = st.empty()


def draw_field(name: str, info: FieldInfo, key: str) -> Any:
    """Draw the widget of one field, chosen by its type; a field of several types is a text box."""
    kind, optional = unwrap_optional(info.annotation)
    if kind is bool and optional:
        return _optional_bool(name, info, key)
    if kind is None:
        return _text(name, info, key)
    origin = get_origin(kind)
    draw = WIDGETS.get(origin if origin in WIDGETS else kind, _text)
    return draw(name, info, key)


def unwrap_optional(annotation: Any) -> tuple[Any, bool]:
    """The type inside `X | None`, and whether None is allowed; the type is None for `X | Y`."""
    if get_origin(annotation) in (Union, UnionType):
        kinds = [one for one in get_args(annotation) if one is not NoneType]
        return kinds[0] if len(kinds) == 1 else None, len(kinds) < len(get_args(annotation))
    return annotation, False


def field_label(name: str, info: FieldInfo) -> str:
    """A field's label; a star marks a required field."""
    return name.replace("_", " ").capitalize() + (" *" if info.is_required() else "")


def field_default(info: FieldInfo) -> Any:
    """The field's default; None if it has none."""
    value = info.get_default(call_default_factory=True)
    return None if value is PydanticUndefined else value


def field_bound(info: FieldInfo, name: str) -> Any:
    """The field's bound (`ge` or `le`); None if it has none."""
    return next((getattr(m, name) for m in info.metadata if hasattr(m, name)), None)


def _help(info: FieldInfo) -> str:
    return re.sub(r"([\\`*_\[\]|<>$:~])", r"\\\1", info.description or "")


def _choice(name: str, info: FieldInfo, key: str) -> Any:
    kind, optional = unwrap_optional(info.annotation)
    options = list(get_args(kind))
    chosen = field_default(info)
    index = options.index(chosen) if chosen in options else None if optional else 0
    return st.selectbox(field_label(name, info), options, index=index, help=_help(info), key=key)


def _toggle(name: str, info: FieldInfo, key: str) -> bool:
    return st.toggle(
        field_label(name, info), value=bool(field_default(info)), help=_help(info), key=key
    )


def _optional_bool(name: str, info: FieldInfo, key: str) -> bool | None:
    """A switch that can also be left at the default."""
    options = {"yes": True, "no": False}
    chosen = st.selectbox(
        field_label(name, info), list(options), index=None, help=_help(info), key=key,
        placeholder="by default",
    )  # fmt: skip
    return None if chosen is None else options[chosen]


def _integer(name: str, info: FieldInfo, key: str) -> Any:
    return st.number_input(
        field_label(name, info), value=field_default(info), min_value=field_bound(info, "ge"),
        max_value=field_bound(info, "le"), step=1, help=_help(info), key=key, placeholder="not set",
    )  # fmt: skip


def _float(name: str, info: FieldInfo, key: str) -> Any:
    # The widget needs all numbers of one type, and bounds are often integers.
    value, low, high = (
        None if one is None else float(one)
        for one in (field_default(info), field_bound(info, "ge"), field_bound(info, "le"))
    )
    return st.number_input(
        field_label(name, info), value=value, min_value=low, max_value=high, format="%g",
        help=_help(info), key=key, placeholder="not set",
    )  # fmt: skip


def _text(name: str, info: FieldInfo, key: str) -> str | None:
    text = st.text_input(
        field_label(name, info), value=field_default(info) or "", help=_help(info), key=key
    )
    return text.strip() or None


def _list(name: str, info: FieldInfo, key: str) -> list[str] | None:
    """A list as text, its entries separated by semicolons."""
    shown = "; ".join(map(str, field_default(info) or ()))
    text = st.text_input(
        field_label(name, info), value=shown, key=key, help=f"{_help(info)} Separate several by ;"
    )
    return split_entries(text)


def split_entries(text: str) -> list[str] | None:
    """The entries of a list that was typed as text; None if there are none."""
    return [part.strip() for part in text.split(";") if part.strip()] or None


WIDGETS: Mapping[Any, DrawWidget] = {
    Literal: _choice,
    bool: _toggle,
    int: _integer,
    float: _float,
    tuple: _list,
    str: _text,
}


def provided_values(cls: type[Spec], values: FormValues) -> FormValues:
    """The values that were filled in; an empty box means the default."""
    return {k: v for k, v in values.items() if v is not None or _is_optional(cls, k)}


def _is_optional(cls: type[Spec], name: str) -> bool:
    return unwrap_optional(cls.model_fields[name].annotation)[1]


def check_readable_paths(values: FormValues, folders: Sequence[Path]) -> None:
    """BadSpec when a form names a file outside the folders it may read."""
    for name, value in values.items():
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, str):
                _check_one(name, one, folders)


def _check_one(name: str, text: str, folders: Sequence[Path]) -> None:
    try:
        check_text(name, text)
    except ValueError as error:
        raise BadSpec(str(error)) from None
    if name not in OUTPUT_FIELDS:
        for piece in _possible_paths(text):
            _check_inside(name, piece, folders)


def _possible_paths(text: str) -> list[str]:
    """A text and its parts that could be paths: `a.csv,b.csv`, `base+adapter`, `task=a.csv`."""
    found = {text}
    for entry in {text, *re.split("[,;]", text)}:
        cuts = [match.start() for match in re.finditer(SEPARATORS, entry)]
        starts, ends = [0, *[cut + 1 for cut in cuts]], [*cuts, len(entry)]
        # Between two separators, up to one, and after one: a path may hold separators itself.
        spans = [*zip(starts, ends, strict=True), *((0, end) for end in ends)]
        spans += [(start, len(entry)) for start in starts]
        found |= {entry[start:end] for start, end in spans if end - start <= MAX_PATH}
    return sorted({piece.strip() for piece in found} - {""})


def _check_inside(name: str, text: str, folders: Sequence[Path]) -> None:
    path = expand_path(text)
    there = path if path.is_absolute() else folders[0] / path
    try:
        outside = there.exists() and not _is_inside(there, folders)
    except (OSError, ValueError, RuntimeError):
        # Not a valid path; the verb will report what is wrong with it.
        return
    if outside:
        raise BadSpec(
            f"{name} {text!r} is outside {str(folders[0])!r}, the only folder this form may read. "
            "Copy it there, or use the command line."
        )


def _is_inside(path: Path, folders: Sequence[Path]) -> bool:
    real = path.resolve()
    return any(real.is_relative_to(place.resolve()) for place in folders)


def resolve_output_paths(values: FormValues, folder: Path) -> FormValues:
    """The values with every output file placed in the folder; BadSpec if it would be outside."""
    resolved = dict(values)
    for name in OUTPUT_FIELDS & values.keys():
        given = values[name]
        if isinstance(given, str) and given:
            there = folder / expand_path(given)
            try:
                stays = _is_inside(there, [folder]) and there.resolve() != folder.resolve()
            except (OSError, ValueError, RuntimeError):
                stays = False
            if not stays:
                raise BadSpec(
                    f"{name} {given!r} is outside {str(folder)!r}, the only folder this form "
                    "may write to. Give a file name such as 'mine.safetensors'."
                )
            resolved[name] = str(there)
    return resolved


def messages_by_field(message: str, names: Sequence[str]) -> dict[str, str]:
    """The sentences of an error message by the field they name; others are left out."""
    messages: dict[str, str] = {}
    for sentence in re.split(r"(?<=[.?])\s+(?=[A-Za-z])", message):
        named = [name for name in names if re.search(rf"\b{re.escape(name)}s?\b", sentence)]
        if len(named) == 1:
            messages[named[0]] = f"{messages.get(named[0], '')} {sentence}".strip()
    return messages
