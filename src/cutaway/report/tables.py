"""Data frames as text, Markdown, CSV or LaTeX."""

import io
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
from rich.cells import cell_len, set_cell_size
from rich.table import Table
from rich.text import Text

from cutaway.console import SafeConsole
from cutaway.core.names import short_names
from cutaway.report import formats

# Integers, shown without decimals even when the column has floats.
COUNT_COLUMNS = frozenset(
    {"repeats", "n_train", "n_test", "n_val", "failed", "times", "repeat", "rows"}
)

# With one of these at its start, spreadsheets take text for a formula.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")

UNLIMITED_WIDTH = 100_000
"""Columns of a table that is not for a terminal: more than any needs."""

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "²": r"\textsuperscript{2}",
    "–": "--", "…": r"\ldots{}", "·": r"\textperiodcentered{}",
}  # fmt: skip


def formatted_rows(frame: pl.DataFrame) -> list[list[str]]:
    """Every value formatted for reading: three digits, a dash for a missing value."""
    return [
        [value_text(v, n) for n, v in zip(frame.columns, row, strict=True)] for row in frame.rows()
    ]


def value_text(value: Any, column: str = "") -> str:
    """One value of a table as text."""
    if value is None:
        return formats.DASH
    if isinstance(value, bool | str):
        return strip_control_characters(value)
    if isinstance(value, int) or column in COUNT_COLUMNS:
        return f"{int(value):,}"
    return formats.number(value) if isinstance(value, float) else strip_control_characters(value)


def strip_control_characters(value: object) -> str:
    """Text without control characters, so that data can't control a terminal or break lines."""
    text = str(value)
    if text.isprintable() and "  " not in text:
        return text
    line = re.sub(r"\s+", " ", text)
    return "".join(c for c in line if unicodedata.category(c) not in ("Cc", "Cf", "Cs"))


def split_constants(frame: pl.DataFrame) -> tuple[dict[str, str], pl.DataFrame]:
    """The names that all lines share, with short paths, and the frame without their columns.

    Columns without any value are dropped too.
    """
    short = with_short_names(frame)
    if short.height < 2:
        return {}, short
    text = [name for name, kind in frame.schema.items() if kind == pl.String]
    same = {name: short[name][0] for name in text if short[name].n_unique() == 1}
    empty = [name for name in short.columns if short[name].null_count() == short.height]
    shared = {name: value for name, value in same.items() if name not in empty}
    return shared, short.drop(*shared, *empty)


def with_short_names(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with the last part of each path, unless two paths would become one name."""
    text = [name for name, kind in frame.schema.items() if kind == pl.String]
    return frame.with_columns(
        pl.col(name).replace(short_names(frame[name].drop_nulls().unique().to_list()))
        for name in text
    )


def to_markdown(frame: pl.DataFrame) -> str:
    """A Markdown table; numbers are right-aligned."""
    rule = ["---:" if _is_numeric(frame, name) else "---" for name in frame.columns]
    lines = [list(map(_markdown_cell, frame.columns)), rule]
    lines += [[_markdown_cell(cell) for cell in row] for row in formatted_rows(frame)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _markdown_cell(text: str) -> str:
    escaped = re.sub(r"([\\`*_\[\]|#])", r"\\\1", text)
    return escaped.replace("&", "&amp;").replace("<", "&lt;")


def to_csv(frame: pl.DataFrame) -> str:
    """Comma-separated values at full precision; text can't be taken for a formula.

    Lists and the like, which a query or a foreign table may have, are written as text.
    """
    nested = [name for name, kind in frame.schema.items() if kind.is_nested() or kind.is_object()]
    frame = frame.with_columns(
        pl.Series(name, [None if v is None else str(v) for v in frame[name].to_list()], pl.String)
        for name in nested
    )
    text = [name for name, kind in frame.schema.items() if kind == pl.String]
    safe = frame.with_columns(pl.col(text).map_elements(csv_text, return_dtype=pl.String))
    return safe.rename(csv_text).write_csv(float_precision=None)


def csv_text(text: str) -> str:
    """Text safe for a spreadsheet: an apostrophe before what could start a formula."""
    return f"'{text}" if text[:1] in FORMULA_STARTS else text


def to_latex(frame: pl.DataFrame) -> str:
    """A booktabs table; every special character escaped."""
    columns = "".join("r" if _is_numeric(frame, name) else "l" for name in frame.columns)
    lines = [[_latex_cell(n.replace("_", " ")) for n in frame.columns]]
    lines += [[_latex_cell(cell) for cell in row] for row in formatted_rows(frame)]
    head, *body = [" & ".join(line) + r" \\" for line in lines]
    start, end = rf"\begin{{tabular}}{{{columns}}}", r"\end{tabular}"
    return "\n".join([start, r"\toprule", head, r"\midrule", *body, r"\bottomrule", end]) + "\n"


def _latex_cell(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def rich_table(frame: pl.DataFrame, *, title: str | None = None) -> Table:
    """The frame for a terminal; markup and control codes in data are not interpreted."""
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for name in frame.columns:
        right = _is_numeric(frame, name)
        table.add_column(
            name.replace("_", " "), justify="right" if right else "left", no_wrap=right
        )
    for row in formatted_rows(frame):
        table.add_row(*[Text(cell) for cell in row])
    return table


def aligned_lines(lines: Sequence[Sequence[str]], width: int) -> list[str]:
    """Lines of cells with aligned columns; cells of the widest columns are cut to fit the width.

    Rich does the same and more, but takes ten seconds for twenty thousand lines.
    """
    gap = "  "
    widths = [max(map(_cell_width, column)) for column in zip(*lines, strict=True)]
    while sum(widths) + len(gap) * (len(widths) - 1) > width and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    return [
        gap.join(_fit(cell, room) for cell, room in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def _cell_width(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def _fit(text: str, room: int) -> str:
    """The text padded, or cut with an ellipsis."""
    size = _cell_width(text)
    return text + " " * (room - size) if size <= room else set_cell_size(text, room - 1) + "…"


def to_text(frame: pl.DataFrame, width: int | None = None) -> str:
    """The frame as plain text: as wide as the terminal, or as it needs where there is none."""
    out, console = io.StringIO(), SafeConsole()
    width = width or (console.width if console.is_terminal else UNLIMITED_WIDTH)
    SafeConsole(file=out, width=width, color_system=None).print(rich_table(frame))
    return out.getvalue()


def _is_numeric(frame: pl.DataFrame, name: str) -> bool:
    return frame.schema[name].is_numeric()


TABLE_FORMATS: dict[str, Callable[[pl.DataFrame], str]] = {
    "table": to_text,
    "markdown": to_markdown,
    "csv": to_csv,
    "latex": to_latex,
}
