"""Prompt templates: fill in texts and check fields."""

import re
from collections.abc import Callable, Mapping

from cutaway.core.errors import BadSpec

_FIELD = re.compile(r"\{(\w*)\}")


def _strip_punctuation(text: str) -> str:
    """The text without final punctuation, which the template provides."""
    return text.rstrip().rstrip(".?!,;:").rstrip() or text


def _lowercase_first(text: str) -> str:
    """The text with a lower-case first letter, except for acronyms and `I`."""
    unchanged = text[1:2].isupper() or text.startswith(("I ", "I'"))
    return text if unchanged else text[:1].lower() + text[1:]


TEXT_EDITS: dict[str, Callable[[str], str]] = {
    "bare": _strip_punctuation,
    "small": _lowercase_first,
}


def fill_template(
    template: str,
    text: str,
    *,
    pair: str | None = None,
    mask: str = "",
    edits: Mapping[str, str] | None = None,
) -> str:
    """Fill in text, pair and mask."""
    edits = edits or {}
    values = {"text": text, "mask": mask} | ({} if pair is None else {"pair": pair})
    changed = {k: TEXT_EDITS[edits[k]](v) if k in edits else v for k, v in values.items()}
    if "{pair}" in template and pair is None:
        raise BadSpec(f"The template {template!r} needs a pair, and the data has none.")
    return _FIELD.sub(lambda match: changed.get(match.group(1), match.group(0)), template)


def check_template(template: str, *, pair: bool, mask: bool, name: str = "template") -> None:
    """Raise ValueError unless the template has exactly the required fields; `name` is where it was
    given."""
    wanted = ["{text}", *(["{pair}"] if pair else []), *(["{mask}"] if mask else [])]
    fields = [f"{{{field}}}" for field in _FIELD.findall(template)]
    missing = [field for field in wanted if field not in fields]
    unknown = [field for field in fields if field not in wanted]
    if missing or unknown:
        wrong = f"lacks {', '.join(missing)}" if missing else f"has {unknown[0]}"
        raise ValueError(
            f"{name} {template!r} {wrong}: expected exactly the fields {', '.join(wanted)}."
        )
