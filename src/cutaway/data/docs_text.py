"""The text set `docs`: English prose from the Python documentation on this machine.

It is taken from the language reference and the docstrings of the standard library, read as text
and never imported. The sentences depend on the Python version, so `meta` has the version and the
digest.
"""

import platform
import re
import sysconfig
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from cutaway.core.digest import digest_rows
from cutaway.core.errors import Missing
from cutaway.core.textset import TextSet
from cutaway.data.prose import prose_sentences

# Little English prose, or not part of the standard library.
SKIPPED_FOLDERS = frozenset({
    "test", "tests", "idle_test", "lib2to3", "turtledemo", "ensurepip", "encodings",
    "site-packages", "dist-packages", "_vendor", "pydoc_data", "__pycache__",
})  # fmt: skip

# A statement that begins with a triple quote is a docstring; this is ten times faster than
# parsing the files.
_DOCSTRING = re.compile(r"^[ \t]*[rRuU]?(\"\"\"|''')(.*?)\1", re.DOTALL | re.MULTILINE)


@cache
def load_docs() -> TextSet:
    """Thousands of distinct sentences about Python, in a fixed order; Missing without docs."""
    sentences = (sentence for text in _documentation_texts() for sentence in prose_sentences(text))
    texts = tuple(dict.fromkeys(sentences))
    if not texts:
        raise Missing(
            "This Python installation has no documentation, so 'docs' is empty. "
            "Give a text file instead."
        )
    meta = {"source": "docs", "python": platform.python_version(), "digest": digest_rows(texts)}
    return TextSet("docs", texts, meta=meta)


def _documentation_texts() -> Iterator[str]:
    """The texts of the language reference, then the docstrings of every module by its path."""
    if find_spec("pydoc_data") is not None:
        from pydoc_data.topics import topics

        yield from (topics[name] for name in sorted(topics))
    library = Path(sysconfig.get_path("stdlib"))
    for path in _python_files(library):
        source = path.read_text("utf-8", errors="ignore")
        yield from (match.group(2) for match in _DOCSTRING.finditer(source))


def _python_files(folder: Path) -> Iterator[Path]:
    """The .py files under a folder, in a fixed order."""
    for path in sorted(folder.iterdir()):
        if path.name in SKIPPED_FOLDERS or path.is_symlink():
            continue
        if path.is_dir():
            yield from _python_files(path)
        elif path.suffix == ".py":
            yield path
