"""The house lints itself: sizes, rooms, what loads what."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cutaway
from cutaway.catalog import methods

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "cutaway"
FILES = sorted(SOURCE.rglob("*.py"))
LONGEST_FILE, LONGEST_FUNCTION = 350, 45

# What the folder of a method holds, and what belongs to it elsewhere.
PARTS = (
    "src/cutaway/methods/{method}/spec.py",
    "src/cutaway/methods/{method}/page.py",
    "src/cutaway/methods/{method}/figures.py",
    "src/cutaway/methods/{method}/table.py",
    "tests/methods/{method}/test_*.py",
)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_file_and_no_function_is_too_long(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LONGEST_FILE
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documented = ast.get_docstring(node) is not None
            start = node.body[1].lineno if documented and len(node.body) > 1 else node.lineno
            assert node.end_lineno - start < LONGEST_FUNCTION, f"{node.name} is too long"


@pytest.mark.parametrize("method", methods())
def test_a_method_is_complete(method: str) -> None:
    missing = [part for part in PARTS if not list(ROOT.glob(part.format(method=method)))]
    assert not missing, f"{method} has no {missing}"


@pytest.mark.parametrize("name", cutaway.__all__)
def test_every_public_name_can_be_used(name: str) -> None:
    assert getattr(cutaway, name) is not None


def test_a_name_that_is_not_public_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'prob'"):
        _ = cutaway.prob


@pytest.mark.parametrize(
    "code",
    [
        "import cutaway",
        "import cutaway.report, cutaway.report.figures, cutaway.report.html",
        "import cutaway.cli",
        "import cutaway.methods.probe.spec, cutaway.methods.graft.spec",
        "import cutaway.store.results, cutaway.data.load",
    ],
)
def test_torch_is_not_loaded_before_it_is_needed(code: str) -> None:
    check = f"{code}; import sys; assert 'torch' not in sys.modules, 'torch was loaded'"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=60)


def test_no_load_path_runs_code() -> None:
    runs_code = re.compile(
        r"\bpickle\b|joblib\.load|torch\.load\((?!.*weights_only=True)|\beval\(|\bexec\("
    )
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in FILES
        for line in path.read_text().splitlines()
        if runs_code.search(line) and ".eval()" not in line and not _only_spoken_of(line)
    ]
    assert not found


def _only_spoken_of(line: str) -> bool:
    """Comments, docstrings and messages may say the word."""
    bare = line.strip()
    return (
        bare.startswith(("#", '"', "'", "f'", 'f"'))
        or "# safe:" in line
        or not re.search(
            r"import\s+(pickle|joblib)|pickle\.|joblib\.|torch\.load\(|\beval\(|\bexec\(", bare
        )
    )


def test_tests_mirror_the_source() -> None:
    rooms = {p.name for p in SOURCE.iterdir() if p.is_dir() and not p.name.startswith("_")}
    assert {r for r in rooms if not (ROOT / "tests" / r).is_dir()} == set()
