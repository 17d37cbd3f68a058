"""Specs: frozen pydantic models that hold all options of a run and determine its address.

The docstring under each field is also its command-line help. A spec is built from flags, from
TOML or from keyword arguments, with the same fields and the same error messages.
"""

import tomllib
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from cutaway.core.digest import digest_json
from cutaway.core.errors import BadSpec
from cutaway.core.lookup import suggestion

SpecT = TypeVar("SpecT", bound="Spec")

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
        frozen=True, extra="forbid", use_attribute_docstrings=True, arbitrary_types_allowed=True
    )

    outside_address: ClassVar[frozenset[str]] = frozenset()
    """More fields outside the address: the identity holds a digest of what they choose."""


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
        elif item["type"] in ("value_error", "assertion_error"):
            lines.append(message if message.endswith(".") else f"{message}.")
        else:
            lines.append(f"{field}: {message}, got {item['input']!r}.")
    return " ".join(lines)
