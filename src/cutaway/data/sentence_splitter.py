"""The one place where text is cut into sentences.

By nupunkt: pure Python without dependencies, kept up, and it knows abbreviations. (pysbd is as
exact, 30 times slower and no longer kept up; sentencex is faster but compiled, one wheel per
platform.)
"""

from importlib.metadata import version


def split_paragraph(paragraph: str) -> list[str]:
    """The sentences of one paragraph."""
    from nupunkt import sent_tokenize

    return [clean for sentence in sent_tokenize(paragraph) if (clean := str(sentence).strip())]


def splitter_version() -> str:
    """What cuts, with its version, for the record."""
    return f"nupunkt {version('nupunkt')}"
