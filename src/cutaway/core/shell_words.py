"""Words of a command as text for a shell; the text has no control characters."""

import shlex
from collections.abc import Sequence


def join_words(words: Sequence[str]) -> str:
    """The command that a POSIX shell splits into these words: `--text='a b'`."""
    return " ".join(map(_quote_word, words))


def _quote_word(word: str) -> str:
    """A word with quotes where it needs them; in `--model=a b` only around the value."""
    flag, equals, value = word.partition("=")
    if equals and flag.startswith("--") and flag.isprintable() and shlex.quote(flag) == flag:
        return f"{flag}={_quote(value)}" if value else word
    return _quote(word)


def _quote(text: str) -> str:
    """As `shlex.quote`; a text that isn't printable as `$'...'` with its bytes in hex."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(map(_escape, text)) + "'"


def _escape(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
