"""The shape of the package: sizes, names, layers, what loads what, tests that mirror the source."""

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cutaway
from cutaway.catalog import methods
from tests import architecture

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


def test_no_class_name_is_used_twice() -> None:
    assert architecture.repeated_classes() == {}


def test_no_modules_import_each_other_in_a_cycle_lazy_imports_included() -> None:
    assert architecture.cycles() == []


def test_shared_packages_know_no_method_by_name() -> None:
    assert architecture.named_methods() == {}


def test_every_module_has_a_test_file_of_its_name_or_a_reason_why_not() -> None:
    assert architecture.untested() == []


def test_the_reasons_are_about_modules_that_are_there_and_have_no_test_file() -> None:
    lines = [line.split("\t") for line in architecture.UNTESTED.read_text().splitlines() if line]
    assert [line for line in lines if len(line) != 2 or not line[1]] == []
    paths = {name: architecture.modules().get(name) for name, _ in lines}
    assert [name for name, path in paths.items() if path is None] == []
    assert [name for name, path in paths.items() if architecture.test_file(path).exists()] == []
    assert len(lines) <= 40


def test_the_package_stays_small_and_its_tests_large() -> None:
    source = architecture.count_lines(architecture.modules().values())
    tests = architecture.count_lines(architecture.TESTS.rglob("*.py"))
    assert source <= architecture.MAX_LINES
    assert tests / source >= architecture.MIN_TEST_RATIO


def test_a_reader_of_probe_meets_few_modules() -> None:
    assert len(architecture.walk("cutaway.methods.probe.recipe")) <= architecture.MAX_WALK


def test_the_diagram_of_the_packages_is_current() -> None:
    spec = importlib.util.spec_from_file_location("diagram", ROOT / "docs" / "diagram.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PICTURE.read_text() == module.draw(), "run: python docs/diagram.py"


PATHS = re.compile(r"\[`(\w+)`\]\((?:\.\./)+(src/cutaway/[\w/]+\.py)\)")


def test_the_pages_about_the_code_name_functions_that_are_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    found = PATHS.findall(text)
    assert len(found) > 20
    for name, path in found:
        module = path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__")
        tree = architecture.tree(module.replace("/", "."))
        defined = {node.name for node in ast.walk(tree) if hasattr(node, "name")}
        defined |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert name in defined, f"{path} has no {name}"
