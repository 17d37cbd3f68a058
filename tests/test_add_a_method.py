"""A sixth method is a folder and a row: docs/howto/add-a-method.md, followed literally in a copy.

And the other way round: a method's folder and its rows can be deleted.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny import tiny

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "howto" / "add-a-method.md"
FENCE = re.compile(r'^```python title="([^"]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
# The method that the last test deletes.
DELETED = "inject"


def python(folder: Path, *words: str, timeout: int = 240) -> subprocess.CompletedProcess[str]:
    where = {"PYTHONPATH": f"{folder / 'src'}:{folder}", "CUTAWAY_HOME": str(folder / "home")}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env={**os.environ, **where},
        capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


def copy_project(folder: Path) -> Path:
    for name in ("src", "tests", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.fixture(scope="module")
def extended(tmp_path_factory) -> Path:
    """A copy of the project with the method of the page."""
    folder = copy_project(tmp_path_factory.mktemp("extended"))
    for name, code in FENCE.findall(PAGE.read_text()):
        path = folder / name
        if path.name == "catalog.py":
            text = path.read_text()
            assert text.count("    )\n}  # fmt: skip\n") == 1
            path.write_text(
                text.replace("    )\n}  # fmt: skip\n", f"{code}    )\n}}  # fmt: skip\n")
            )
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code)
    for part in ("turn", "turn/maths"):
        (folder / "tests" / "methods" / part).mkdir(parents=True, exist_ok=True)
        (folder / "tests" / "methods" / part / "__init__.py").touch()
    return folder


def test_the_new_method_has_a_command_a_run_a_figure_and_a_report(extended) -> None:
    model = tiny("llama", extended / "model")
    assert "turn" in python(extended, "-m", "cutaway", "--help").stdout
    words = ["turn", "--model", str(model), "--limit", "20", "--json", "--quiet"]
    first = json.loads(python(extended, "-m", "cutaway", *words).stdout)
    assert "turns the hidden states most" in first["verdict"][0]
    again = python(extended, "-m", "cutaway", *words[:-1])
    assert "already done" in again.stderr
    assert json.loads(again.stdout)["address"] == first["address"]
    report = python(extended, "-m", "cutaway", "report", "--html", "report.html")
    assert report.returncode == 0, report.stderr
    assert "How much each block turns the hidden states" in (extended / "report.html").read_text()


def test_the_new_method_has_a_python_function_a_page_a_form_and_a_place_in_the_docs(
    extended,
) -> None:
    code = """
import inspect, cutaway
from cutaway.app.pages import PAGES
from cutaway.catalog import VERBS
assert inspect.signature(cutaway.turn).parameters["limit"].default == 100
assert "Use at most this many texts" in cutaway.turn.__doc__
assert PAGES["turn"].views == {"Layers": ("layers",)}
assert set(VERBS["turn"].form) <= set(VERBS["turn"].spec_class.model_fields)
"""
    found = python(extended, "-c", code)
    assert found.returncode == 0, found.stderr
    assert python(extended, "docs/generate.py").returncode == 0
    assert "cutaway turn" in (extended / "docs" / "cli.md").read_text()


def test_the_new_method_keeps_the_contracts_and_its_tests_pass(extended) -> None:
    lint = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports"))], cwd=extended, timeout=240,
        env={**os.environ, "PYTHONPATH": str(extended / "src")}, capture_output=True, text=True,
    )  # fmt: skip
    assert lint.returncode == 0, lint.stdout
    own = python(extended, "-m", "pytest", "-q", "tests/methods/turn")
    assert own.returncode == 0, own.stdout


def test_a_method_can_be_deleted(tmp_path) -> None:
    folder = copy_project(tmp_path)
    shutil.rmtree(folder / "src" / "cutaway" / "methods" / DELETED)
    shutil.rmtree(folder / "tests" / "methods" / DELETED)
    catalog = folder / "src" / "cutaway" / "catalog.py"
    row = re.compile(
        rf'        Verb\(\n            "[^"]+", "{DELETED}\..*?\n        \),\n', re.DOTALL
    )
    text, deleted = row.subn("", catalog.read_text())
    assert deleted >= 1
    catalog.write_text(text)
    code = """
import importlib, pkgutil, cutaway
for module in pkgutil.walk_packages(cutaway.__path__, "cutaway."):
    if not module.name.endswith("__main__") and ".app." not in module.name:
        importlib.import_module(module.name)
"""
    found = python(folder, "-c", code)
    assert found.returncode == 0, found.stderr
    lint = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports"))], cwd=folder, timeout=240,
        env={**os.environ, "PYTHONPATH": str(folder / "src")}, capture_output=True, text=True,
    )  # fmt: skip
    assert lint.returncode == 0, lint.stdout
    # Those that ask the catalog for methods, their figures, tables, pages or sentences.
    asking = ("figures", "html", "method_page", "method_table", "sections", "sentences", "write")
    rest = [
        "tests/recipe/test_life_cycle.py",
        "tests/methods/probe/test_figures.py",
        *(f"tests/report/test_{name}.py" for name in asking),
    ]
    tests = python(folder, "-m", "pytest", "-q", "-x", *rest)
    assert tests.returncode == 0, tests.stdout
