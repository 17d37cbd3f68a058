"""Specs: frozen pydantic models that hold all options of a run and determine its address.

The docstring under each field is also its command-line help. A spec is built from flags, from
TOML or from keyword arguments, with the same fields and the same error messages.
"""

import tomllib
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, ClassVar, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from cutaway.core.digest import digest_json
from cutaway.core.errors import BadSpec
from cutaway.core.lookup import suggestion

SpecT = TypeVar("SpecT", bound="Spec")

NONE_WORD = "none"
"""How None is written for a field with another default: `--limit=none`."""

# Fields that can't change the result, so they are not part of the address.
FIELDS_OUTSIDE_ADDRESS = frozenset(
    {"runs", "engine", "device", "offline", "quiet", "json_out", "dry_run", "print_spec", "out"}
)

# Fields added after runs were kept, with the values that leave numbers as they were before: at
# these the field is not part of the address, so that earlier runs are found again.
VALUES_OUTSIDE_ADDRESS: dict[str, tuple[Any, ...]] = {
    "bos": ("auto", "keep"),
    "chat": (False,),
    "system": (None,),
    "quantise": ("none",),
    "precision": ("auto",),
    "samples": (False,),
}
# `auto` is resolved when the model is opened; the precision in use is part of the model's identity.
SAME_ADDRESS = {"dtype": {"auto": "float32"}}


class Spec(BaseModel):
    """Base class of all specs: frozen, unknown fields refused, field docstrings kept as help."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        arbitrary_types_allowed=True,
        allow_inf_nan=False,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _usable_text(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse text that no command can hold, and read `none` where None is not the default."""
        for text in value if isinstance(value, list | tuple) else (value,):
            if isinstance(text, str):
                check_text(info.field_name or "", text)
        field = cls.model_fields[info.field_name or ""]
        if value == NONE_WORD and field.default is not None and _allows_none(field.annotation):
            return None
        return value

    outside_address: ClassVar[frozenset[str]] = frozenset()
    """More fields outside the address: the identity holds a digest of what they choose."""


def check_text(name: str, text: str) -> None:
    """ValueError for the text of a field that can't be an argument of a command."""
    try:
        usable = b"\0" not in text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise ValueError(f"{name} has a NUL or an unpaired surrogate, got {text[:60]!r}.")


def _allows_none(annotation: Any) -> bool:
    """Whether the type is `X | None`, and `none` is not one of its own words."""
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()
    return NoneType in kinds and not any(NONE_WORD in get_args(kind) for kind in kinds)


def spec_digest(spec: "Spec") -> str:
    """SHA-256 of all fields of a spec, also of those outside its address."""
    return digest_json({"kind": type(spec).__name__, "spec": spec_to_dict(spec)})


def build_spec(cls: type[SpecT], values: Mapping[str, Any]) -> SpecT:
    """Build a spec from a dict; BadSpec says which field is wrong and what is allowed."""
    known = list(cls.model_fields)
    for key in values:
        if key not in known:
            hint = suggestion(key, known)
            raise BadSpec(f"{cls.__name__} has no field {key!r}. {hint}Known: {', '.join(known)}.")
    try:
        return cls(**values)
    except ValidationError as error:
        raise BadSpec(explain_validation_error(error)) from None


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; BadSpec names the line that can't be read."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSpec(f"This is not valid TOML: {error}.") from None
    except RecursionError:
        raise BadSpec("This TOML is nested too deeply. Use fewer levels.") from None
    except ValueError as error:
        # An integer with thousands of digits, which Python refuses to parse.
        raise BadSpec(f"This TOML has a value that can't be read: {str(error)[:60]}.") from None


def spec_to_dict(spec: Spec) -> dict[str, Any]:
    """The spec as JSON-ready values."""
    return spec.model_dump(mode="json")


def address(spec: Spec, **identity: Any) -> str:
    """The name of the spec's run: 16 hex digits over everything that can change the result.

    `identity` holds digests of what the spec refers to by name, such as weights and data rows.
    """
    fields = {
        name: SAME_ADDRESS.get(name, {}).get(value, value) if isinstance(value, str) else value
        for name, value in spec_to_dict(spec).items()
        if name not in FIELDS_OUTSIDE_ADDRESS | spec.outside_address
        and value not in VALUES_OUTSIDE_ADDRESS.get(name, ())
    }
    key = {"kind": type(spec).__name__, "spec": fields, "identity": identity}
    return digest_json(key)[:16]


def explain_validation_error(error: ValidationError) -> str:
    """One readable sentence per invalid field."""
    lines = []
    for item in error.errors():
        field = ".".join(str(part) for part in item["loc"]) or error.title
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "missing":
            lines.append(f"{field} is required.")
        elif item["type"] == "too_short" and not item["input"]:
            lines.append(f"{field} needs at least one value.")
        elif item["type"] in ("value_error", "assertion_error"):
            lines.append(message if message.endswith(".") else f"{message}.")
        else:
            lines.append(f"{field}: {message}, got {item['input']!r}.")
    return " ".join(lines)
