"""`cutaway report`: one page, tables or pictures of any runs, and a line about each."""

from collections.abc import Sequence
from pathlib import Path

from cutaway.catalog import methods
from cutaway.core.errors import Missing
from cutaway.core.lookup import lookup
from cutaway.report.export import write_run_pictures
from cutaway.report.html import write_html
from cutaway.report.records import CombinedRuns, RecordLike, run_title
from cutaway.report.tables import (
    TABLE_FORMATS,
    method_table,
    strip_control_characters,
    summarize_cells,
)


def write_report(
    records: Sequence[RecordLike],
    *,
    html: Path | None = None,
    table: str | None = None,
    figures: str | None = None,
    out: Path = Path("figures"),
    title: str = "Cutaway report",
) -> list[str]:
    """What was asked for, written; the tables themselves or a line per file for the user.

    With nothing asked for, the page goes to `report.html`.
    """
    if not records:
        raise Missing("No runs to report on. Make one first, for example with: cutaway tour")
    lines = []
    if table is not None:
        lines += _tables(records, table)
    if figures is not None:
        lines += [_pictures(record, figures, out) for record in records]
    if html is not None or (table is None and figures is None):
        path = write_html(records, html or Path("report.html"), title=title)
        lines.append(f"Written: {path} ({path.stat().st_size / 1e6:.1f} MB)")
    return lines


def _tables(records: Sequence[RecordLike], kind: str) -> list[str]:
    """One table per run; runs whose paper has a layout of its own stand in one of that kind."""
    made, done = [], []
    for method in methods():
        layout = method_table(method, "PAPER_TABLE")
        if layout is None:
            continue
        mine = [r for r in records if r.method == method and layout(r.rows).height]
        if mine:
            tuned = [r for r in records if r.method == "finetune"]
            together = CombinedRuns(tuple(mine)).rows
            frame = layout(together, numbers=kind == "csv", beside=tuned)
            text = lookup(TABLE_FORMATS, kind, kind="table format")(frame)
            title = f"{_heading_prefix(kind)}{method}, in the layout of the paper"
            made.append(text if kind == "csv" else f"{title}\n\n{text}")
            done += [r.address for r in mine]
    return made + [_table(r, kind) for r in records if r.address not in done]


def _table(record: RecordLike, kind: str) -> str:
    text = lookup(TABLE_FORMATS, kind, kind="table format")(summarize_cells(record.rows))
    # CSV is read by programs: several runs differ by their model and data columns.
    return text if kind == "csv" else f"{_table_heading(record, kind)}\n\n{text}"


def _table_heading(record: RecordLike, kind: str) -> str:
    return f"{_heading_prefix(kind)}{strip_control_characters(record.method)} {strip_control_characters(record.address)}: {strip_control_characters(run_title(record))}"


def _heading_prefix(kind: str) -> str:
    """What makes a line a heading."""
    return {"markdown": "## ", "latex": "% "}.get(kind, "")


def _pictures(record: RecordLike, kind: str, out: Path) -> str:
    folder = out / f"{record.method}-{record.address}"
    made = write_run_pictures(record, folder, formats=(kind,))
    return f"Written: {len(made)} files in {folder}"
