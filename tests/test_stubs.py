"""Signatures that editors and type checkers see are those of the specs."""

import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import cutaway
from cutaway.catalog import VERBS, Verb

ROOT = Path(__file__).parents[1]
RIGHT = """
import cutaway
lm = cutaway.open("smollm2-135m")
result = cutaway.probe(model=lm, data={"text": ["a"], "label": [1]}, layers=[0, 6], pool="mean")
result.summary["verdict"]
cutaway.graft.learn(base="a", tuned="b", task="sst2", sparsity=[0.1, 0.2])
cutaway.shortcut.lens("hello", model=lm).show()
"""
WRONG = {
    'cutaway.probe(model="a", dat="b")': "Unexpected keyword argument",
    'cutaway.probe(model="a", data="b", repeats="ten")': 'expected "int"',
    'cutaway.probe(model="a", data="b", protocol="kfolds")': "Literal['kfolds']",
    'cutaway.graft.learn(base="a", tuned="b")': 'Missing named argument "task"',
    "cutaway.shortcut.fit(model=3)": 'incompatible type "int"',
    'cutaway.inject(model="x").sumary': 'maybe "summary"',
}


def generator():
    spec = importlib.util.spec_from_file_location("stubs", ROOT / "docs" / "stubs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stub_files_are_current() -> None:
    stale = [path for path, text in generator().stubs().items() if path.read_text() != text]
    assert stale == [], "run: python docs/stubs.py"


def function(verb: Verb):
    owner = cutaway
    for name in verb.name.split("."):
        owner = getattr(owner, name)
    return owner


@pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: verb.words)
def test_a_signature_shows_every_field_with_its_default_and_help(verb) -> None:
    shown, fields = inspect.signature(function(verb)).parameters, verb.spec_class.model_fields
    assert set(shown) == {*fields, "quiet"}
    for name, info in fields.items():
        required = shown[name].default is inspect.Parameter.empty
        assert required == info.is_required()
        assert required or shown[name].default == info.get_default(call_default_factory=True)
        assert " ".join(info.description.split()) in function(verb).__doc__


def test_arguments_without_a_name_are_refused_except_the_first_of_some_verbs() -> None:
    with pytest.raises(TypeError, match="give them by name"):
        cutaway.probe("smollm2-135m")
    with pytest.raises(TypeError, match="only 'text' may come without its name"):
        cutaway.shortcut.lens("a text", "another")


@pytest.mark.slow
def test_a_type_checker_accepts_right_code_and_finds_every_mistake(tmp_path) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text("import cutaway\n" + "\n".join(WRONG) + "\n")
    options = ["--follow-imports=silent", f"--cache-dir={ROOT / '.mypy_cache'}", "--config-file="]
    words = [sys.executable, "-m", "mypy", *options, "right.py", "wrong.py"]
    found = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    lines = [line for line in found.stdout.splitlines() if ": error:" in line]
    assert [line for line in lines if line.startswith("right.py")] == []
    assert len(lines) == len(WRONG), found.stdout
    for number, (code, message) in enumerate(WRONG.items(), start=2):
        assert any(line.startswith(f"wrong.py:{number}:") and message in line for line in lines), (
            code
        )
