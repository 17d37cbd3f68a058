"""`cutaway report`: runs as one HTML page, as tables, or as picture files."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from cutaway.catalog import methods
from cutaway.core.errors import Missing
from cutaway.core.lookup import lookup
from cutaway.report.drawing.values import Drawing
from cutaway.report.export import write_run_pictures
from cutaway.report.html import write_html
from cutaway.report.method_table import table_of
from cutaway.report.records import CombinedRuns, RecordLike, run_title
from cutaway.report.tables import (
    TABLE_FORMATS,
    split_constants,
    strip_control_characters,
    with_short_names,
)
from cutaway.store.files import disk_errors, write_atomic

HEADING_PREFIX = {"markdown": "## ", "latex": "% "}


def write_report(
    records: Sequence[RecordLike],
    *,
    html: Path | None = None,
    table: str | None = None,
    figures: str | None = None,
    out: Path | None = None,
    title: str = "Cutaway report",
    note: str = "",
    drawings: Sequence[Drawing] = (),
) -> list[str]:
    """Write the requested page, tables or pictures; returns the tables and a line per file.

    Without any of them the page is written to `report.html`; it begins with the drawings. `out` is
    the folder of the pictures, else the file of the tables, else that of the page. `note` is shown
    below the title of the page.
    """
    if not records:
        raise Missing("No runs to report on. Make one first, for example with: cutaway tour")
    lines = []
    if table is not None and (figures is not None or out is None):
        lines += _tables(records, table)
    elif table is not None and out is not None:
        with disk_errors(out):
            write_atomic(out, "\n".join(_tables(records, table)).encode())
        lines.append(f"Written: {out}")
    if figures is not None:
        lines += [_pictures(record, figures, out or Path("figures")) for record in records]
    if html is not None or (table is None and figures is None):
        target = html or out or Path("report.html")
        path = write_html(records, target, title=title, note=note, drawings=drawings)
        lines.append(f"Written: {path} ({path.stat().st_size / 1e6:.1f} MB)")
    return lines


def _tables(records: Sequence[RecordLike], kind: str) -> list[str]:
    """One table per method, or one in all as CSV; a method whose paper has a table follows it."""
    to_text, prefix = lookup(TABLE_FORMATS, kind, kind="table format"), HEADING_PREFIX.get(kind, "")
    texts, others = [], []
    for method in methods_of(records):
        layout = table_of(method).paper
        of_method = [r for r in records if r.method == method]
        mine = [r for r in of_method if layout and layout(r.rows).height]
        others += [r for r in of_method if r not in mine]
        if layout and mine:
            rows = CombinedRuns(tuple(mine)).rows
            table = layout(rows, numbers=kind == "csv", beside=records)
            title = f"{prefix}{method}, in the layout of the paper"
            text = to_text(table if kind == "csv" else with_short_names(table))
            texts.append(text if kind == "csv" else f"{title}\n\n{text}")
    if kind == "csv":
        # Read by programs: one header, and names as they were given.
        return [*texts, to_text(_cells_of_runs(others))] if others else texts
    for method in methods_of(others):
        mine = [r for r in others if r.method == method]
        shared, lines = split_constants(_cells_of_runs(mine).drop("method", strict=False))
        heading = f"{prefix}{strip_control_characters(_heading(method, mine))}"
        facts = ", ".join(
            f"{name.replace('_', ' ')} {value}" for name, value in shared.items() if value
        )
        texts.append("\n\n".join(filter(None, (heading, _comment(facts, kind), to_text(lines)))))
    return texts


def methods_of(records: Sequence[RecordLike]) -> list[str]:
    """The methods of these runs, in the catalog's order, unknown ones last."""
    found = dict.fromkeys(record.method for record in records)
    return [m for m in methods() if m in found] + [m for m in found if m not in methods()]


def _cells_of_runs(records: Sequence[RecordLike]) -> pl.DataFrame:
    """The cells of runs as one table; with several runs, method and address name each."""
    frames = [table_of(r.method).summary(r.rows) for r in records]
    if len(records) == 1:
        return frames[0]
    named = [
        frame.select(pl.lit(r.method).alias("method"), pl.lit(r.address).alias("run"), pl.all())
        for r, frame in zip(records, frames, strict=True)
    ]
    return pl.concat(named, how="diagonal_relaxed")


def _heading(method: str, records: Sequence[RecordLike]) -> str:
    if len(records) > 1:
        return f"{method}: {len(records)} runs"
    return f"{method} {records[0].address}: {run_title(records[0])}"


def _comment(facts: str, kind: str) -> str:
    """What all lines of a table share, in a line above it."""
    text = strip_control_characters(facts)
    return f"% {text}" if text and kind == "latex" else text


def _pictures(record: RecordLike, kind: str, out: Path) -> str:
    folder = out / f"{record.method}-{record.address}"
    paths = write_run_pictures(record, folder, formats=(kind,))
    return f"Written: {len(paths)} files in {folder}"
