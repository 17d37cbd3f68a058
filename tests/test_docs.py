"""The words around the code are held to the code."""

import ast
import importlib.util
import re
import shlex
import subprocess
import sys
from functools import cache
from itertools import pairwise, product
from pathlib import Path

import pytest
from cyclopts import MissingArgumentError

import cutaway
from cutaway.catalog import VERBS
from cutaway.cli.main import app
from cutaway.cli.verbs import add_positional_flag
from cutaway.core import errors
from cutaway.methods.probe.spec import ProbeSpec
from cutaway.pool import pooler

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FRONT = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
PAGES = [*FRONT, ROOT / "llms.txt", *sorted(DOCS.rglob("*.md"))]
SOURCES = sorted((ROOT / "src" / "cutaway").rglob("*.py"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# With attributes after the language too, as in: ```python title="recipe.py"
ANY_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
# Flags of other programs that our messages give the line for.
FOREIGN = {"--no-deps", "--force-reinstall", "--merge"}
# Pages whose snippets stand on their own feet: no model, no files.
RUNNABLE = (
    "howto/add-a-pooler.md",
    "howto/add-a-metric.md",
    "howto/add-a-classifier.md",
    "errors.md",
)


WITH_PYTHON = [ROOT / "README.md", DOCS / "index.md", *sorted(DOCS.glob("*/*.md"))]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def generator():
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def snippets(path: Path, language: str) -> list[str]:
    return [code for tag, code in FENCE.findall(path.read_text()) if tag == language]


def commands(path: Path) -> list[str]:
    """Every `cutaway ...` of a page: lines of plain blocks, and code spans.

    A line that is followed by an error message is meant to be wrong.
    """
    text = path.read_text()
    blocks = [code for tag, code in FENCE.findall(text) if tag in ("", "bash", "sh")]
    lines = [pair for block in blocks for pair in pairwise([*block.splitlines(), ""])]
    given = [line.strip().removeprefix("$ ") for line, after in lines if after[:8] != "cutaway:"]
    spans = re.findall(r"`([^`\n]+)`", ANY_FENCE.sub("", text))
    return [words for words in [*given, *spans] if words.startswith("cutaway ")]


def alternatives(command: str) -> list[list[str]]:
    """The words of a command; `ls|size` gives one command for each."""
    bare = re.sub(r"\s*\\?\|\s*", "|", command)
    words = shlex.split(bare, comments=True)[1:]
    split = [[word] if " " in word else word.split("|") for word in words]
    return [list(chosen) for chosen in product(*split)]


@cache
def every_flag() -> set[str]:
    return {
        flag
        for _, command in generator().commands()
        for argument in command.assemble_argument_collection()
        for flag in argument.names
    }


def constants(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]


@pytest.mark.parametrize("page", ["cli.md", "tables.md", "verdicts.md"])
def test_generated_pages_are_what_the_code_says(page, tmp_path):
    generator().main(tmp_path)
    said = "run: make docs (or .venv/bin/python docs/generate.py)"
    assert (DOCS / page).read_text() == (tmp_path / page).read_text(), said


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_somewhere(page):
    text = ANY_FENCE.sub("", page.read_text())
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    for link in links:
        if not link.startswith(("http:", "https:", "mailto:", "#")):
            target, _, anchor = link.partition("#")
            assert (page.parent / target).exists(), link
            assert not anchor or anchor in anchors(page.parent / target), link


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", ANY_FENCE.sub("", page.read_text()), re.MULTILINE)
    bare = [re.sub(r"[^\w\s-]", "", head).strip().lower() for head in heads]
    return {re.sub(r"[-\s]+", "-", head) for head in bare}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_in_the_docs_can_be_given(page):
    for command in commands(page):
        # docs/howto/add-a-method.md adds this verb; tests/test_add_a_method.py follows that page.
        if command.split()[1] == "turn":
            continue
        for words in alternatives(command):
            parse(add_positional_flag(words), command)


def parse(words: list[str], command: str) -> None:
    chain, _, rest = app.parse_commands(words)
    assert chain or words[0].startswith("--"), f"no such command: {command}"
    try:
        app.parse_args(words, exit_on_error=False, print_error=False)
    except MissingArgumentError:
        # A command may be spoken of without its arguments.
        assert not rest, command
    except Exception as error:
        pytest.fail(f"{command}: {error}")


def test_the_docs_know_commands():
    assert sum(len(commands(page)) for page in PAGES) > 30


@pytest.mark.parametrize("name", cutaway.__all__)
def test_every_public_name_is_in_the_docs(name):
    assert any(f"cutaway.{name}" in page.read_text() for page in PAGES)


@pytest.mark.parametrize("verb", VERBS)
def test_every_field_of_a_spec_is_on_the_command_line_page(verb):
    page = (DOCS / "cli.md").read_text()
    section = page.split(f"## `cutaway {verb}`\n")[1].split("\n## ")[0]
    for field in VERBS[verb].spec_class.model_fields:
        assert f"`--{field.strip('_').replace('_', '-')}`" in section, field


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_python_in_the_docs_compiles(page):
    for code in snippets(page, "python"):
        compile(code, name_of(page), "exec")


@pytest.mark.parametrize("page", RUNNABLE)
def test_snippets_that_need_no_model_run(page):
    code = "\n".join(snippets(DOCS / page, "python"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_error_tree_is_drawn_as_it_is():
    drawn = (DOCS / "errors.md").read_text()
    tree = {
        name: kind.__base__.__name__
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.CutawayError)
    }
    assert parents(snippets(DOCS / "errors.md", "")[0]) == tree
    assert snippets(DOCS / "errors.md", "")[0].split() == drawing(errors.__doc__).split()
    for kind in (errors.RequestError, errors.RunError):
        assert f"| {kind.exit_status} |" in drawn


def drawing(text: str) -> str:
    lines = [line for line in text.splitlines() if re.match(r"\s+([├└│]|CutawayError$)", line)]
    return "\n".join(lines)


def parents(tree: str) -> dict[str, str]:
    """Class -> the class it hangs on, by how far it is indented."""
    found, above = {}, {-1: "Exception"}
    for line in tree.splitlines():
        match = re.search(r"[A-Z]\w+", line)
        depth = match.start() // 4
        above[depth] = match[0]
        found[match[0]] = above[depth - 1]
    return found


def test_every_file_in_the_readmes_tree_exists():
    tree = next(code for code in snippets(ROOT / "README.md", "") if "src/cutaway/" in code)
    places = paths(tree)
    assert len(places) > 20
    assert [place for place in places if not list(ROOT.glob(place))] == []


def test_every_room_is_in_the_readmes_tree():
    tree = next(code for code in snippets(ROOT / "README.md", "") if "src/cutaway/" in code)
    rooms = [p for p in (ROOT / "src" / "cutaway").iterdir() if p.is_dir() and p.name[0] != "_"]
    named = {place.rstrip("/") for place in paths(tree)}
    assert {f"src/cutaway/{room.name}" for room in rooms} <= named


def paths(tree: str) -> list[str]:
    """Full paths of a tree that is drawn by indentation, two spaces a step."""
    found, above = [], {}
    for line in filter(str.strip, tree.splitlines()):
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        above[depth] = name
        found.append("".join(above[d] for d in range(depth + 1)))
    return found


# app/launch.py gives another program its flags.
OURS = [path for path in SOURCES if path.name != "launch.py"]


@pytest.mark.parametrize("path", OURS, ids=name_of)
def test_flags_and_commands_in_messages_exist(path):
    known = every_flag() | FOREIGN | {"--help"}
    for text in constants(path):
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z](?![\w-])", text):
            assert flag in known, text
        for word in re.findall(r"(?:with: |see: |`)cutaway ([a-z]+)", text):
            assert word in list(app), text


def test_the_names_in_the_specs_help_exist():
    from cutaway.methods.probe.maths.cell import CLASSIFIERS

    said = {name: ProbeSpec.model_fields[name].description for name in ("pool", "classifier")}
    pools = re.split(r"[;(]", said["pool"].split(": ", 1)[1])[0].split()
    assert pools[-1] == "learned"
    pools += re.findall(r"\w+@\w+", said["pool"])
    assert len(pools) > 10 and all(pooler(name) for name in pools if name != "learned")
    named = said["classifier"].split(": ")[1].replace("...", "").rstrip(" .").split()
    assert named and set(named) <= set(CLASSIFIERS)


def test_the_reference_page_names_every_part_of_the_probing_reference():
    page = (DOCS / "coming-from.md").read_text()
    for part in (
        "get_data.py", "NLPDataset", "load_embeds_into_memory", "LMModel", "PoolToken", "quantile",
        "layer_method", "extend", "SingleStepOpt", "set_thresholds", "discrete_targets",
        "MultiStepOpt", "max_epoch", "init_optimizer", "training_step", "test_step",
        "RunExperiments", "n_folds", "dataset_paths", "model_names", "evaluator", "logs_folder",
        "log_data", "run_all", "streamlit_app.py", "visualisation_experiments.py",
    ):  # fmt: skip
        assert part in page, part
