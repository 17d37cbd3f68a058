"""Results on a terminal: all runs, one run, the report of `cutaway check`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cutaway.console import SafeConsole, print_result
from cutaway.core.errors import CutawayError
from cutaway.report import formats, tables
from cutaway.report.method_table import table_of
from cutaway.report.metric_labels import metric_label
from cutaway.report.provenance import provenance
from cutaway.report.records import RecordLike, run_title, verdict_sentences
from cutaway.report.summary import failed_cells

# A pipe has no width; this one is wide enough for the tables.
PIPE_WIDTH = 170
VERDICT_STYLES = {"fine": "green", "noisy": "yellow", "wrong": "bold red"}


def print_runs(listed: pl.DataFrame) -> None:
    """Print all runs of an overview, one line each."""
    console = stdout_console()
    if listed.is_empty():
        print_result("No runs here yet. Make some with: cutaway tour")
        return
    head, *lines = runs_lines(listed, console.width)
    console.print(Text(head, style="bold"))
    print_result("\n".join(lines))


def print_record(record: RecordLike) -> None:
    """Print one run: verdict, best cells, failures, provenance, command."""
    stdout_console().print(record_view(record))


def print_check(report: Mapping[str, Any]) -> None:
    """A model's trust report on stdout."""
    stdout_console().print(check_view(report))


def runs_lines(listed: pl.DataFrame, width: int) -> list[str]:
    """A heading and one line per run, in the given order."""
    names = ["address", "method", "model", "data", "score", "where", "time", "made"]
    lines = [
        [tables.strip_control_characters(cell) for cell in _run_line(line)]
        for line in listed.iter_rows(named=True)
    ]
    return tables.aligned_lines([names, *lines], width)


def _run_line(line: Mapping[str, Any]) -> list[str]:
    metric = f"{metric_label(line['metric'])} " if line["metric"] else ""
    value = formats.interval(line["score"], line["low"], line["high"])
    score = formats.DASH if line["score"] is None else metric + value
    return [
        line["address"],
        line["method"],
        formats.shorten(line["model"], 28),
        formats.shorten(line["data"], 28),
        score,
        line["where"],
        formats.duration(line["seconds"]),
        "imported" if line["origin"] == "imported" else line["created"],
    ]


def record_view(record: RecordLike) -> RenderableType:
    """One run: verdict, tables, provenance, command."""
    title = Text(
        tables.strip_control_characters(f"{record.method}: {run_title(record)}"), style="bold"
    )
    verdict = [_clean_text(f"• {sentence}") for sentence in verdict_sentences(record)]
    blocks: list[RenderableType] = [title, *verdict, Text("")]
    try:
        blocks += _measured_blocks(record, record.rows)
    except CutawayError as error:
        blocks.append(Text(tables.strip_control_characters(error), style="yellow"))
    return Group(*blocks, Text(""), _facts_table(provenance(record)), *_command(record.command))


def _measured_blocks(record: RecordLike, rows: pl.DataFrame) -> list[RenderableType]:
    blocks: list[RenderableType] = []
    for title, table in table_of(record.method).terminal_grids(rows, record):
        blocks += [*[Text("")] * bool(blocks), *_titled_table(title, table)]
    failed = failed_cells(rows)
    if not failed.is_empty():
        blocks.append(Text("\nFailed cells", style="bold yellow"))
        blocks += _titled_table("", failed.head(20))
    return blocks


def _titled_table(title: str, frame: pl.DataFrame) -> list[RenderableType]:
    """The table; what all of its lines share is in the line above it, after the title."""
    shared, lines = tables.split_constants(frame)
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shared.items())
    heading = " · ".join(part for part in (title, facts) if part)
    return [*[_clean_text(heading)] * bool(heading), tables.rich_table(lines)]


def _command(command: str) -> list[RenderableType]:
    return [Text("\nRepeat with:"), Padding(_clean_text(command), (0, 2))] if command else []


def check_view(report: Mapping[str, Any]) -> RenderableType:
    """The facts of a model, its consistency checks, what each method supports, and its sizes."""
    count = len(report["checks"])
    all_passed = Text(f"all {count} consistency checks passed", "green")
    verdict_ = all_passed if report["passed"] else Text("FAILED", "bold red")
    title = Text.assemble((tables.strip_control_characters(report["name"]), "bold"), ": ", verdict_)
    facts = [(k.replace("_", " "), _fact_text(k, v)) for k, v in report.items() if _is_fact(k, v)]
    tokenizer = [
        (name.replace("_", " "), _fact_text(name.rpartition(" ")[2], value))
        for name, value in _flat_facts(report["tokenizer"])
    ]
    needs = [(k.replace("_", " "), formats.file_size(v)) for k, v in report["estimates"].items()]
    return Group(
        title,
        _facts_table(facts),
        _heading("Consistency checks"),
        _checks_table(report["checks"]),
        *_warnings(report.get("warnings", ())),
        _heading("Methods"),
        _facts_table(list(report["supports"].items())),
        _heading("Memory by method, with default options"),
        _facts_table([(name, formats.file_size(size)) for name, size in report["memory"].items()]),
        _heading("Tokenizer"),
        _facts_table(tokenizer),
        _heading("Sizes"),
        _facts_table(needs),
        *[_clean_text(f"• {note}") for note in report["notes"]],
    )


def _flat_facts(facts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The facts by name; those of a group have its name before theirs."""
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from ((f"{name} {inner}", one) for inner, one in value.items())
        else:
            yield name, value


def _warnings(warnings: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    if not warnings:
        return []
    lines = [_clean_text(f"! {one['name']}: {one['message']}") for one in warnings]
    return [Text("\nWarnings", style="bold yellow"), *lines]


def _is_fact(key: str, value: Any) -> bool:
    return isinstance(value, str | int | float) and key not in ("name", "passed")


def _fact_text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or formats.DASH
    if isinstance(value, str) and "\n" in value:
        return repr(value)
    return formats.DASH if value is None else str(value)[: 16 if key == "digest" else None]


def _checks_table(checks: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    numbers = ("measured", "noise")
    for name in ("check", *numbers, "verdict", ""):
        table.add_column(name, justify="right" if name in numbers else "left")
    for one in checks:
        table.add_row(
            _clean_text(one["name"]),
            *(formats.number(one[name]) for name in numbers),
            Text(one["verdict"], VERDICT_STYLES[one["verdict"]]),
            _clean_text(one.get("detail", "")),
        )
    return table


def _facts_table(facts: Sequence[tuple[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in facts:
        table.add_row(_clean_text(label), _clean_text(value))
    return table


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _clean_text(text: object) -> Text:
    """Text from data without markup and control codes."""
    return Text(tables.strip_control_characters(text))


def stdout_console() -> SafeConsole:
    """A console on stdout, wide where that is no terminal."""
    console = SafeConsole()
    return console if console.is_terminal else SafeConsole(width=PIPE_WIDTH)
