"""Writes docs/cli.md, docs/tables.md and docs/verdicts.md from the tables of the code.

    python docs/generate.py [FOLDER]

`make docs` runs it; tests/test_docs.py fails when the committed pages are not what it writes.
"""

import inspect
import json
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from cyclopts import App

from cutaway.cli.main import app

NOTE = "<!-- Written by docs/generate.py; change the code, then run: make docs -->\n"
# Written by `make null`.
RATES = Path(__file__).parents[1] / "bench" / "nulls.json"
PLAIN = {str: "text", int: "number", float: "number", Path: "path"}
# Commands in the order a newcomer needs them; the others follow.
FIRST = (
    "tour",
    "check",
    "models",
    "tasks",
    "probe",
    "shortcut",
    "run",
    "ls",
    "show",
    "query",
    "report",
)


def main(folder: Path) -> None:
    """Write every generated page into the folder."""
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")


def cli_page() -> str:
    """The command line: one section per command, one table row per option."""
    parts = [NOTE, "# Command line\n", INTRODUCTION]
    for words, command in commands():
        parts.append(section(words, command))
    return "\n".join(parts)


INTRODUCTION = """\
Every command takes `--help`. Results go to stdout, progress and messages to stderr. Lists may be
repeated (`--model a --model b`), listed (`--model a b`) or joined by commas
(`--model a,b`); prompts, and `gen:NAME?...` with options, are never split at commas: repeat the
option. Switches have an opposite: `--offline`, `--no-offline`.

Exit status: 0 done, 2 the request is wrong, 1 the run failed, 130 interrupted (repeat the command
to continue). See [errors](errors.md).
"""


def commands(root: App = app, words: tuple[str, ...] = ("cutaway",)) -> Iterator[tuple[str, App]]:
    """Every command with its words."""
    names = [name for name in root if not name.startswith("-")]
    for name in sorted(names, key=lambda n: FIRST.index(n) if n in FIRST else len(FIRST)):
        child = root[name]
        if any(not inner.startswith("-") for inner in child):
            yield from commands(child, (*words, name))
        else:
            yield " ".join((*words, name)), child


def section(words: str, command: App) -> str:
    """The section of a command: what it does and its options."""
    given = [a for a in command.assemble_argument_collection(parse_docstring=True) if a.show]
    # The text before the parameters, which have their own table.
    text = " ".join(inspect.cleandoc(command.help or "").partition("\n\nParameters\n")[0].split())
    # A row of a table is one line.
    rows = [
        [option(a), takes(a), default(a), " ".join((a.parameter.help or "").split())] for a in given
    ]
    return f"## `{words}`\n\n{text}\n\n" + table(
        ["option", "takes", "default", "what it does"], rows
    )


def option(argument: Any) -> str:
    """The option as typed."""
    return f"`{argument.names[0]}`"


def takes(argument: Any) -> str:
    """The values of the option."""
    choices = ", ".join(f"`{choice}`" for choice in argument.get_choices() or ())
    if choices and _plain_too(argument.hint):
        return f"{choices} or number"
    return choices or _type_words(argument.hint)


def _plain_too(hint: Any) -> bool:
    """Whether a number is allowed in addition to the choices."""
    return (
        get_origin(hint) in (Union, types.UnionType) and {int, float} & set(get_args(hint)) != set()
    )


def _type_words(hint: Any) -> str:
    if hint is bool:
        return "a switch"
    if get_origin(hint) in (tuple, list):
        inner = next(part for part in get_args(hint) if part is not Ellipsis)
        return f"one or more: {_type_words(inner)}"
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [_type_words(part) for part in get_args(hint) if part is not type(None)]
        return " or ".join(dict.fromkeys(kinds))
    if get_origin(hint) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(hint))
    return PLAIN.get(hint, "text")


def default(argument: Any) -> str:
    """The default value."""
    if argument.required:
        return "**required**"
    value = argument.field_info.default
    if value is None or value is False or value is inspect.Parameter.empty:
        return ""
    if isinstance(value, (tuple, list)):
        return f"`{','.join(map(str, value))}`" if value else ""
    return "on" if value is True else f"`{value}`"


def tables_page() -> str:
    """Every table of names."""
    parts = [NOTE, "# Tables\n", "The allowed names, generated from the code.\n"]
    return "\n".join([*parts, *(f"## {title}\n\n{make()}" for title, make in TABLES.items())])


VERDICTS = """\
# Verdicts

Every sentence that a run's verdict can hold, what it claims, when it is printed, the test behind it,
and how often it was false on null data. Names in braces are in place of numbers and names.

A sentence that compares ends in one of three ways:

- **shown**: the difference is significant at the 5 % level;
- **shown to be absent**: the 90 % interval of the difference lies within a margin, which the sentence
  gives (two one-sided tests at 5 %);
- **can't tell**: neither; the sentence then estimates how many test rows would show a difference of
  the margin's size with a power of 80 %.

What a sentence claims is one of:

- *difference*: it says that two scores differ. It is false on null data, where they don't.
- *absence*: it says that they don't differ by more than a margin. It is false where they differ by
  exactly that margin.
- *interval*: it gives an interval. It is false where the true value lies outside.
- *guarantee*: it gives a bound with a confidence. It is false where the bound is broken.

Sentences without a claim report numbers as measured, or what could not be measured.

The last column is measured by the null suite, `make null`: real runs of every verb on tiny models,
and simulated test rows, in which the claim is false by construction (`bench/nulls/`). A sample of it
runs with the tests. The bar is 5 % for every kind of sentence, and
7 % for intervals, which are to cover in 93 to 97 of 100 runs. A test at 5 % makes 5 % false claims on
null data if it is exact, so a count may be a little higher by chance: a kind is above the bar if a rate
of 5 % would give this count less than once in 100 (binomial). No kind is by this rule, which was
introduced on 18 November 2026 together with these counts; by the count alone three are: the gain of
`graft learn` (5.4 %), `graft continual` (5.1 %), and the absence of a difference between next-word
features and f (5.5 %).
"""


def poolers() -> str:
    """The poolers and what each needs."""
    from cutaway.pool import POOLERS

    rows = [[f"`{p.name}`", sentence(p.function), p.needs or ""] for p in POOLERS.values()]
    rows += [
        ["`q0.4`", "The token at that fraction of the text: `q0` first, `q1` last.", ""],
        ["`attn:3`", "As `attn`, with the weights of one head.", "attention"],
        [
            "`learned`",
            "Attention over all tokens with a query trained by the probe, whose classifier is then "
            "`attention` (probe only).",
            "",
        ],
    ]
    return table(["pooler", "gives", "needs"], rows)


def classifiers() -> str:
    """The classifiers of probe, the tasks they serve, and whether they stream from disk."""
    from cutaway.methods.probe.maths.cell import CLASSIFIERS

    rows = [
        [f"`{name}`", row.text, ", ".join(row.tasks), "yes" if row.streams else ""]
        for name, row in CLASSIFIERS.items()
    ]
    return table(["classifier", "what it is", "tasks", "streams from disk"], rows)


def protocols() -> str:
    """The protocols, from the docstring of their module."""
    from cutaway.measure import splits

    lines = [line.split(maxsplit=1) for line in (splits.__doc__ or "").splitlines()]
    text = {words[0]: words[1] for words in lines if len(words) == 2}
    return table(["protocol", "rows"], [[f"`{n}`", text[n]] for n in splits.PROTOCOLS])


def metrics() -> str:
    """The metrics, their inputs, and the tasks they are reported for by default."""
    from cutaway.measure import calibration
    from cutaway.measure.metrics import METRICS

    rows = []
    for name, metric in METRICS.items():
        text = sentence(metric.function) or sentence(getattr(calibration, name))
        better = "higher" if metric.higher_is_better else "lower"
        rows.append([f"`{name}`", text, metric.needs, better, ", ".join(metric.tasks) or "by name"])
    return table(["metric", "what it is", "input", "better", "reported for"], rows)


def figures() -> str:
    """The figures of each method."""
    from cutaway.catalog import methods
    from cutaway.report.figures import figures_of

    rows = [
        [method, f"`{name}`", sentence(draw)]
        for method in methods()
        for name, draw in figures_of(method).items()
    ]
    return table(["method", "figure", "shows"], rows)


def families() -> str:
    """The model families with a row in ANATOMIES."""
    from cutaway.models.anatomy import ANATOMIES

    rows = [[f"`{name}`", row.kind, row.layout] for name, row in ANATOMIES.items()]
    return table(["family", "kind", "block layout"], rows)


def bundled() -> str:
    """The models that are installed as packages."""
    from cutaway.models.bundled import BUNDLED

    rows = [[f"`{name}`", row.description, f"`{row.package}`"] for name, row in BUNDLED.items()]
    return table(["model", "what it is", "package"], rows)


def tasks() -> str:
    """The known tasks."""
    from cutaway.data.tasks import known_tasks

    rows = [[f"`{n}`", t.description, t.kind, _hub(t)] for n, t in sorted(known_tasks().items())]
    return table(["task", "question", "labels", "rows come from"], rows)


def _hub(task: Any) -> str:
    return f"`hf:{task.source.hub}`" if task.source else "a file"


def generated() -> str:
    """The generated data sets."""
    from cutaway.data.generate import GENERATORS

    return table(["set", "about"], [[f"`gen:{n}`", g.description] for n, g in GENERATORS.items()])


def endings() -> str:
    """The file formats that can be read."""
    from cutaway.data.files import READERS

    return ", ".join(f"`{ending}`" for ending in READERS) + "\n"


def sentence(thing: Any) -> str:
    """The first paragraph of a docstring, as one line; empty where there is none."""
    inner = getattr(thing, "func", thing)
    text = getattr(thing, "description", None) or inspect.getdoc(inner) or ""
    return " ".join(text.split("\n\n")[0].split())


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; bars inside cells are escaped. Empty columns are omitted."""
    rows = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    used = [i for i in range(len(head)) if any(row[i] for row in rows)]
    lines = [
        [head[i] for i in used],
        ["---" for _ in used],
        *([row[i] for i in used] for row in rows),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) if used else ""


def verdicts_page() -> str:
    """Every sentence of every verdict, with its rule, its test and its measured error rate."""
    from cutaway.report.sentences import sentence_kinds

    rates = json.loads(RATES.read_text()) if RATES.exists() else {}
    parts = [NOTE, VERDICTS]
    methods: dict[str, list[list[str]]] = {}
    for key, kind in sentence_kinds().items():
        line = [
            "<br>".join(kind.says),
            kind.claims,
            kind.rule,
            kind.test,
            _rate(rates.get(key, {})),
        ]
        methods.setdefault(kind.method, []).append(line)
    head = ["sentence", "claims", "printed when", "test", "false on null data"]
    parts += [f"## {name}\n\n{table(head, rows)}" for name, rows in methods.items()]
    return "\n".join(parts)


def _rate(by_claim: dict[str, dict[str, list[int]]]) -> str:
    """False claims of runs, for each sort of claim and each world."""
    return "<br>".join(
        f"{claim}, {world}: {false} of {runs:,} ({false / runs:.1%})"
        for claim, by_world in by_claim.items()
        for world, (false, runs) in by_world.items()
    )


TABLES = {
    "Models in a package": bundled,
    "Model families": families,
    "Tasks": tasks,
    "Generated sets": generated,
    "File endings": endings,
    "Poolers": poolers,
    "Classifiers": classifiers,
    "Protocols": protocols,
    "Metrics": metrics,
    "Figures": figures,
}
PAGES = {"cli.md": cli_page, "tables.md": tables_page, "verdicts.md": verdicts_page}

if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
