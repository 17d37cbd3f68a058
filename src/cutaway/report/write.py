"""`cutaway report`: runs as one HTML page, as tables, or as picture files."""

from collections.abc import Sequence
from pathlib import Path

from cutaway.catalog import methods
from cutaway.core.errors import Missing
from cutaway.core.lookup import lookup
from cutaway.report.export import write_run_pictures
from cutaway.report.html import write_html
from cutaway.report.method_table import table_of
from cutaway.report.records import CombinedRuns, RecordLike, run_title
from cutaway.report.tables import TABLE_FORMATS, strip_control_characters
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
) -> list[str]:
    """Write the requested page, tables or pictures; returns the tables and a line per file.

    Without any of them the page is written to `report.html`. `out` is the folder of the pictures,
    else the file of the tables, else that of the page.
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
        path = write_html(records, html or out or Path("report.html"), title=title)
        lines.append(f"Written: {path} ({path.stat().st_size / 1e6:.1f} MB)")
    return lines


def _tables(records: Sequence[RecordLike], kind: str) -> list[str]:
    """One table per run; runs of a method whose paper has a table share one in its layout."""
    to_text, prefix = lookup(TABLE_FORMATS, kind, kind="table format"), HEADING_PREFIX.get(kind, "")
    texts, done = [], []
    for method in methods():
        layout = table_of(method).paper
        mine = [r for r in records if r.method == method and layout and layout(r.rows).height]
        if layout and mine:
            rows = CombinedRuns(tuple(mine)).rows
            text = to_text(layout(rows, numbers=kind == "csv", beside=records))
            title = f"{prefix}{method}, in the layout of the paper"
            texts.append(text if kind == "csv" else f"{title}\n\n{text}")
            done += [r.address for r in mine]
    for record in records:
        if record.address not in done:
            text = to_text(table_of(record.method).summary(record.rows))
            title = f"{record.method} {record.address}: {run_title(record)}"
            # CSV is read by programs: several runs differ by their model and data columns.
            heading = f"{prefix}{strip_control_characters(title)}\n\n" if kind != "csv" else ""
            texts.append(heading + text)
    return texts


def _pictures(record: RecordLike, kind: str, out: Path) -> str:
    folder = out / f"{record.method}-{record.address}"
    paths = write_run_pictures(record, folder, formats=(kind,))
    return f"Written: {len(paths)} files in {folder}"
