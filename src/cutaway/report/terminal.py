"""Results on a terminal: all runs, one run, a model's trust report."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cutaway.core.errors import CutawayError
from cutaway.report import formats, tables
from cutaway.report.cells import failures, metric_words
from cutaway.report.overview import overview
from cutaway.report.provenance import provenance
from cutaway.report.records import RecordLike, headline, verdict

# Pipes have no width; this one fits the tables without wrapping.
PIPE_WIDTH = 170


def print_runs(records: Iterable[RecordLike]) -> None:
    """All runs, one line each, on stdout."""
    _console().print(runs_table(records))


def print_record(record: RecordLike) -> None:
    """One run on stdout: verdict, best cells, failures, provenance, command."""
    _console().print(record_view(record))


def print_check(report: Mapping[str, Any]) -> None:
    """A model's trust report on stdout."""
    _console().print(check_view(report))


def runs_table(records: Iterable[RecordLike]) -> RenderableType:
    """One line per run, newest first as given; a hint when there are none."""
    listed = overview(records)
    if listed.is_empty():
        return Text("No runs here yet. Make some with: cutaway tour")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("address", "method", "model", "data", "best", "where", "time", "made"):
        table.add_column(name, overflow="ellipsis", no_wrap=name not in ("model", "data"))
    for line in listed.iter_rows(named=True):
        table.add_row(*[_plain(cell) for cell in _run_line(line)])
    return table


def _run_line(line: Mapping[str, Any]) -> list[str]:
    metric = f"{metric_words(line['metric'])} " if line["metric"] else ""
    best = formats.interval(line["best"], line["low"], line["high"])
    score = formats.DASH if line["best"] is None else metric + best
    return [
        line["address"],
        line["method"],
        formats.cut(line["model"], 28),
        formats.cut(line["data"], 28),
        score,
        line["where"],
        formats.duration(line["seconds"]),
        "imported" if line["origin"] == "imported" else line["created"],
    ]


def record_view(record: RecordLike) -> RenderableType:
    """Verdict first, then the numbers behind it, then where they come from."""
    title = Text(tables.clean(f"{record.method}: {headline(record)}"), style="bold")
    said = [_plain(f"• {sentence}") for sentence in verdict(record)]
    blocks: list[RenderableType] = [title, *said, Text("")]
    try:
        blocks += _measured(record, record.rows)
    except CutawayError as error:
        blocks.append(Text(tables.clean(error), style="yellow"))
    return Group(*blocks, Text(""), _facts(provenance(record)), *_command(record.command))


def _measured(record: RecordLike, rows: pl.DataFrame) -> list[RenderableType]:
    best = tables.rich_table(tables.highlights(rows, record, most=8))
    failed = failures(rows)
    if failed.is_empty():
        return [best]
    return [best, Text("\nFailed cells", style="bold yellow"), tables.rich_table(failed.head(20))]


def _command(command: str) -> list[RenderableType]:
    return [Text("\nRepeat it with:"), Padding(_plain(command), (0, 2))] if command else []


def check_view(report: Mapping[str, Any]) -> RenderableType:
    """What the model is, which laws it holds, what each method can do with it, what it takes."""
    verdict_ = Text("every law holds", "green") if report["passed"] else Text("FAILED", "bold red")
    title = Text.assemble((tables.clean(report["name"]), "bold"), ": ", verdict_)
    facts = [(k.replace("_", " "), _value(k, v)) for k, v in report.items() if _is_fact(k, v)]
    tokenizer = [(k.replace("_", " "), _value(k, v)) for k, v in report["tokenizer"].items()]
    needs = [(k.replace("_", " "), formats.size(v)) for k, v in report["estimates"].items()]
    return Group(
        title,
        _facts(facts),
        _heading("Laws"),
        _laws(report["laws"]),
        _heading("Methods"),
        _facts(list(report["supports"].items())),
        _heading("Tokenizer"),
        _facts(tokenizer),
        _heading("Sizes"),
        _facts(needs),
        *[_plain(f"• {note}") for note in report["notes"]],
    )


def _is_fact(key: str, value: Any) -> bool:
    return isinstance(value, str | int | float) and key not in ("name", "passed")


def _value(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or formats.DASH
    return formats.DASH if value is None else str(value)[: 16 if key == "digest" else None]


def _laws(laws: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "law", "measured", "allowed", ""):
        table.add_column(name, justify="right" if name in ("measured", "allowed") else "left")
    for law in laws:
        mark = Text("✓", "green") if law["passed"] else Text("✗", "bold red")
        numbers = (formats.number(law["measured"]), formats.number(law["limit"]))
        table.add_row(mark, _plain(law["name"]), *numbers, _plain(law.get("detail", "")))
    return table


def _facts(facts: Sequence[tuple[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in facts:
        table.add_row(_plain(label), _plain(value))
    return table


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _plain(text: object) -> Text:
    """Text from data: no markup, no control codes."""
    return Text(tables.clean(text))


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)
