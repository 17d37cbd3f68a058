"""The tables of sentences are those of the code, in both directions."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from cutaway.core.errors import BadSpec
from cutaway.report.sentences import PLACEHOLDER, kind_of, read_kind, sentence_kinds

SOURCE = Path(__file__).parents[2] / "src" / "cutaway"
TABLES = sorted(SOURCE.rglob("sentences.toml"))
METHODS = [path.parent.name for path in TABLES]
# Where sentences are written; shared phrases of conclusions may be part of any.
WRITERS = ("verdict*.py",)
SHARED = (SOURCE / "measure" / "conclusions.py", SOURCE / "data" / "main_metric.py")
# Texts shorter than this many words are parts of speech, not sentences.
WORDS = 5


@cache
def written(folder: Path) -> tuple[str, ...]:
    """The literal parts of every text in the functions of a method's modules."""
    paths = [*sorted(folder.glob("*.py")), *SHARED]
    return tuple(part for path in paths if path.exists() for part in literals(path))


def literals(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    skipped = {id(doc) for f in functions if (doc := docstring(f)) is not None}
    skipped |= {id(n) for r in ast.walk(tree) if isinstance(r, ast.Raise) for n in ast.walk(r)}
    inside = [n for f in functions for n in ast.walk(f) if id(n) not in skipped]
    constants = [n for a in tree.body if isinstance(a, ast.Assign) for n in ast.walk(a)]
    found = [n.value for n in inside if is_text(n)]
    # Of the module's constants, whole sentences; names and units are not.
    found += [n.value for n in constants if is_text(n) and n.value.endswith(".")]
    # A text for str.format has its names inside.
    return [part for text in found for part in re.split(r"\{[^}]*\}", text)]


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def docstring(function: ast.FunctionDef) -> ast.Constant | None:
    first = function.body[0]
    given = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return first.value if given else None


def kinds(method: str) -> list:
    return [kind for kind in sentence_kinds().values() if kind.method == method]


def long(text: str) -> bool:
    return len(re.findall(r"\w+", text)) >= WORDS


@pytest.mark.parametrize("table", TABLES, ids=METHODS)
def test_every_text_of_a_verdict_is_in_its_table(table: Path) -> None:
    listed = [text for kind in kinds(table.parent.name) for text in kind.says]
    own = [p for pattern in WRITERS for path in table.parent.glob(pattern) for p in literals(path)]
    missing = [part for part in own if long(part) and not any(part.strip() in t for t in listed)]
    assert not missing, f"Add these sentences to {table}."


@pytest.mark.parametrize("table", TABLES, ids=METHODS)
def test_every_sentence_of_a_table_is_in_the_code(table: Path) -> None:
    code = {part.strip() for part in written(table.parent)} - {""}
    stale = {
        text: left
        for kind in kinds(table.parent.name)
        for text in kind.says
        if (left := without(text, code))
    }
    assert not stale, f"Remove or correct these sentences in {table}."


def without(text: str, code: set[str]) -> str:
    """What is left of a sentence when the code's texts are taken out, longest first."""
    left = PLACEHOLDER.sub("\0", text)
    for part in sorted((part for part in code if part in text), key=len, reverse=True):
        left = left.replace(part, "\0")
    return " ".join(re.findall(r"\w+", left))


@pytest.mark.parametrize("folder", sorted({p.parent for p in SOURCE.glob("methods/*/verdict.py")}))
def test_every_method_has_a_table(folder: Path) -> None:
    assert (folder / "sentences.toml").exists()


@pytest.mark.parametrize("key", sentence_kinds())
def test_a_sentence_is_recognised_as_its_kind(key: str) -> None:
    kind = sentence_kinds()[key]
    for text in kind.says:
        filled = PLACEHOLDER.sub("0.5", text)
        for sentence in (filled, f"a model on a set: {filled}"):
            assert kind_of(sentence, kind.method) == kind
            assert kind.match(sentence) is not None


def test_a_sentence_of_no_table_has_no_kind() -> None:
    assert kind_of("All is well.", METHODS[0]) is None


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"says": "A.", "rule": ""},
        {"says": "A.", "rule": "always", "claims": "difference"},
        {"says": "A.", "rule": "always", "test": "t"},
        {"says": "A.", "rule": "always", "claims": "much", "test": "t"},
    ],
)
def test_an_incomplete_row_is_refused(row: dict) -> None:
    with pytest.raises(BadSpec, match="probe x: "):
        read_kind("probe", "x", row)
