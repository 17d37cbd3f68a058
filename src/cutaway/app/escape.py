"""Escapes text from data for Markdown."""

import re

WORD_JOINER = "\u2060"


def escape_markdown(text: object) -> str:
    """Text from data as Markdown that shows it literally: no links, images or colours."""
    line = re.sub(r"\s+", " ", str(text))
    # Bare URLs become links even when escaped; an invisible character inside prevents it.
    line = re.sub(r"(?i)https?(?=:)|www(?=\.)|(?=@)", lambda m: f"{m[0]}{WORD_JOINER}", line)
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|<>~$:&@/])", r"\\\1", line)
