"""`cutaway report`: one page, tables or pictures of any runs, and a line about each."""

from collections.abc import Sequence
from pathlib import Path

from cutaway.core.errors import Missing
from cutaway.core.lookup import lookup
from cutaway.report.export import write_run_pictures
from cutaway.report.html import write_html
from cutaway.report.records import RecordLike, headline
from cutaway.report.tables import TABLES, clean, summary


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
        lines += [_table(record, table) for record in records]
    if figures is not None:
        lines += [_pictures(record, figures, out) for record in records]
    if html is not None or (table is None and figures is None):
        path = write_html(records, html or Path("report.html"), title=title)
        lines.append(f"Written: {path} ({path.stat().st_size / 1e6:.1f} MB)")
    return lines


def _table(record: RecordLike, kind: str) -> str:
    text = lookup(TABLES, kind, kind="table format")(summary(record.rows))
    # CSV is read by programs: several runs differ by their model and data columns.
    return text if kind == "csv" else f"{_comment(record, kind)}\n\n{text}"


def _comment(record: RecordLike, kind: str) -> str:
    mark = {"markdown": "## ", "latex": "% "}.get(kind, "")
    return f"{mark}{clean(record.method)} {clean(record.address)}: {clean(headline(record))}"


def _pictures(record: RecordLike, kind: str, out: Path) -> str:
    folder = out / f"{record.method}-{record.address}"
    made = write_run_pictures(record, folder, formats=(kind,))
    return f"Written: {len(made)} files in {folder}"
