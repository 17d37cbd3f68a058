"""Text from data on a page: shown, never obeyed."""

import re

WORD_JOINER = "\u2060"


def escape_markdown(text: object) -> str:
    """Text from data as Markdown that shows it letter by letter: no links, pictures or colours."""
    line = re.sub(r"\s+", " ", str(text))
    # Bare addresses become links whatever is escaped; an invisible joiner inside them prevents it.
    line = re.sub(r"(?i)https?(?=:)|www(?=\.)|(?=@)", lambda m: f"{m[0]}{WORD_JOINER}", line)
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|<>~$:&@/])", r"\\\1", line)
