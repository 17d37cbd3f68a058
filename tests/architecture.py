"""Measure the shape of the package: python -m tests.architecture prints the figures.

Everything here reads source files; nothing is imported from the package but the catalog.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from cutaway.catalog import methods

ROOT = Path(__file__).parents[1]
SOURCE, TESTS = ROOT / "src" / "cutaway", ROOT / "tests"
UNTESTED = TESTS / "untested_modules.txt"
# 43,000 lines were aimed at; what is left is function, not repetition (docs/design.md). Raised for
# statistics and safety (60,000), then for the index, the drawing and saved work (66,000).
MAX_LINES, MIN_TEST_RATIO, MAX_WALK = 66_000, 0.7, 45
# Packages that every verb uses; a walk through one verb doesn't count them.
EDGES = ("core", "data", "models", "store", "engine")
# Packages that serve all methods and so may know none of them by name.
SHARED = (
    "cli", "console", "core", "data", "engine", "extract", "home", "measure", "models", "pool",
    "recipe", "report", "solvers", "store", "training",
)  # fmt: skip
# The Live page shows three methods side by side.
SHARED_APP = re.compile(r"cutaway\.app(?!\.live)")


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree(module: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(modules()[module].read_text())


def imports(module: str, *, lazy: bool = True) -> set[str]:
    """The modules of ours that a module imports; with `lazy` also inside functions.

    Imports for type checkers only are not followed: they don't happen.
    """
    found = set()
    for node in _statements(tree(module), lazy=lazy):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in modules() else node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name for name in found if name in modules() and name != module}


def _statements(node: ast.AST, *, lazy: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        typing = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
        function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if not typing and (lazy or not function):
            yield child
            yield from _statements(child, lazy=lazy)


def closure(start: str) -> set[str]:
    """A module and everything it imports when it is loaded, directly or not."""
    found, todo = set(), [start]
    while todo:
        module = todo.pop()
        if module not in found:
            found.add(module)
            todo += imports(module, lazy=False)
    return found


def walk(module: str) -> set[str]:
    """The modules that a reader of one verb meets: its imports without the shared edges."""
    return {m for m in closure(module) if m.partition(".")[2].partition(".")[0] not in EDGES}


def cycles() -> list[list[str]]:
    """Groups of modules that import each other, lazy imports included."""
    graph = {module: imports(module) for module in modules()}
    reach = {module: _reachable(graph, module) for module in graph}
    groups = {
        tuple(sorted(other for other in reach[module] if module in reach[other]))
        for module in graph
        if module in reach[module]
    }
    return [list(group) for group in sorted(groups)]


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    todo = list(graph[start])
    while todo:
        module = todo.pop()
        if module not in found:
            found.add(module)
            todo += graph[module]
    return found


def repeated_classes() -> dict[str, list[str]]:
    """Class names that stand for several classes, with their modules."""
    found = defaultdict(list)
    for module in modules():
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(module)
    return {name: where for name, where in found.items() if len(where) > 1}


def named_methods() -> dict[str, list[str]]:
    """Shared modules that name a method in a string or import one, with the names."""
    words = re.compile(rf"\b(?:cutaway\.methods\.)?({'|'.join(methods())})\b")
    found = {}
    for module in modules():
        package = module.partition(".")[2].partition(".")[0]
        if package in SHARED or SHARED_APP.match(module):
            texts = [*_plain_strings(tree(module)), *imports(module)]
            names = sorted({m for text in texts for m in words.findall(text) if _is_name(text, m)})
            if names:
                found[module] = names
    return found


def _is_name(text: str, method: str) -> bool:
    """Whether a string is a name (a key, a path, a module) and not a sentence with the word."""
    return text == method or text.startswith(f"cutaway.methods.{method}")


def _plain_strings(node: ast.AST) -> Iterator[str]:
    for child in ast.walk(node):
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.value


def untested() -> list[str]:
    """Modules without a test file of their name that are not listed as such."""
    listed = {line.split("\t")[0] for line in UNTESTED.read_text().splitlines() if line.strip()}
    return [
        module
        for module, path in modules().items()
        if path.name != "__init__.py" and module not in listed and not test_file(path).exists()
    ]


def test_file(path: Path) -> Path:
    """Where the tests of a module are expected."""
    inner = path.relative_to(SOURCE)
    return TESTS / inner.parent / f"test_{inner.stem.strip('_')}.py"


def count_lines(paths: Iterable[Path]) -> int:
    """Lines of code, comments and blank lines."""
    return sum(len(path.read_text().splitlines()) for path in paths)


def figures() -> dict[str, object]:
    """The figures of the architecture, by name."""
    source, tests = count_lines(modules().values()), count_lines(TESTS.rglob("*.py"))
    return {
        f"lines of source (at most {MAX_LINES:,})": source,
        f"tests : source (at least {MIN_TEST_RATIO})": round(tests / source, 3),
        f"modules on the walk of `cutaway probe` (at most {MAX_WALK}; 63 in version 0.1)": len(
            walk("cutaway.methods.probe.recipe")
        ),
        "class names used twice": repeated_classes(),
        "import cycles": cycles(),
        "shared modules that name a method": named_methods(),
        "modules without a test file": untested(),
        "modules": len(modules()),
    }


if __name__ == "__main__":
    for name, value in figures().items():
        sys.stdout.write(f"{name}: {value}\n")
