"""Extract English sentences from documentation, without code, tables and markup."""

import re
from collections.abc import Iterator

from cutaway.data.lexicon_split import word_set
from cutaway.data.sentence_splitter import split_paragraph

_BULLET = re.compile(r"(?m)^[ \t]*(?:[*\-•+]|\(?\d{1,2}[.)])[ \t]+")
_CODE_LINE = re.compile(r"(?m)^[ \t]*(?:>>>|\.\.\.|\$ |#|@|[-=~+|*^\"]{3}|[\w.]{1,40} ?:{0,2}=)")
_INNER_END = re.compile(r"[.?!][\"')”’]?\s")
_ROLE = re.compile(r":[a-z:]+:`~?([^`<]*)[^`]*`")
_MARKS = re.compile(r"``|(?<!\w)[*`]{1,2}(?=\w)|(?<=[\w.,)])[*`]{1,2}(?!\w)|\s\[[\w#]{1,4}\](?:_)?")

_ENDS = frozenset(".?!\"'”’)")
_SHAPE = re.compile(r"[\"'“‘(]?[A-Z][A-Za-z0-9 ,.;:'\"()\-–—?!/%’‘“”é]*[.?!][\"'”’)]?")
# Signs of code in a sentence: calls, dotted names, camel case, paths, file names, placeholders.
_CODE = re.compile(
    r"\w\(|\w:\w|\(\)|\w\.(?!g\.|e\.|m\.|[A-Z]\.)[A-Za-z]|[a-z][A-Z]|\w/\w*/|--|(?<!\S)-\w|\b[A-Z]{7,}\b|''|\.\.\.|(?<!\w)/|\s[.,;:]"
)
_SKIPPED_STARTS = re.compile(
    r"(?:Note|See|Changed|New|Added|Deprecated|Copyright|Author|Usage|Bases|Raises|Args|Returns?:)\b"
)
_COMMON = word_set(
    """
    the a an of to is are be in and or for that this it with as if not by on from which when can
    will you has have must may at there no all any been was but used only its one than
    """
)


def prose_sentences(text: str) -> Iterator[str]:
    """The prose sentences of a documentation text, in order."""
    for paragraph in paragraphs(text):
        several = _INNER_END.search(paragraph) is not None
        for sentence in split_paragraph(paragraph) if several else (paragraph,):
            if is_prose(sentence):
                yield sentence


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs and list items of a text, each on one line, without markup and code blocks."""
    for block in re.split(r"\n[ \t]*\n", text):
        if _CODE_LINE.search(block):
            continue
        for item in _BULLET.split(block):
            line = " ".join(item.split())
            if line:
                yield _MARKS.sub("", _ROLE.sub(r"\1", line))


def is_prose(sentence: str) -> bool:
    """Whether it is a complete English sentence of mostly common words, without code."""
    if sentence[-1:] not in _ENDS or not _SHAPE.fullmatch(sentence):
        return False
    tokens = sentence.split()
    if not 6 <= len(tokens) <= 60:
        return False
    if _CODE.search(sentence) or _SKIPPED_STARTS.match(sentence) or not _balanced(sentence):
        return False
    plain = [token.strip(",.;:?!()\"'“”’") for token in tokens]
    small = sum(token.islower() and token.replace("-", "").isalpha() for token in plain)
    common = sum(token.lower() in _COMMON for token in plain)
    return small >= 0.75 * len(tokens) and common >= 2


def _balanced(sentence: str) -> bool:
    return sentence.count("(") == sentence.count(")") and sentence.count('"') % 2 == 0
