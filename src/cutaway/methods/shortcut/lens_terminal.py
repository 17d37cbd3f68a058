"""The lens as a table in the terminal: one row per layer, one column per token."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from cutaway.methods.shortcut.lens_page import lens_table
from cutaway.report.terminal import stdout_console

KIND_TITLES = {"id": "without a map (logit lens)", "mat": "through a linear map to the last layer"}


def print_lens(lens: Mapping[str, Any]) -> None:
    """Every kind's grid on stdout; green cells agree with the full model."""
    console = stdout_console()
    for kind in lens["kinds"]:
        console.print(terminal_grid(lens, kind))
    console.print(
        "Each cell: the most likely next token and its probability in percent; "
        "* agrees with the full model."
    )


def terminal_grid(lens: Mapping[str, Any], kind: str) -> Table:
    """One kind's table; tokens come from the model and are never parsed as markup."""
    head, *rows = lens_table(lens, kind)
    grid = Table(title=f"{kind}: {KIND_TITLES.get(kind, 'through a fitted map')}", show_lines=False)
    for word in head:
        grid.add_column(Text(word), no_wrap=True)
    for row in rows:
        grid.add_row(*(Text(cell, style="green" if cell.endswith("*") else "") for cell in row))
    return grid
