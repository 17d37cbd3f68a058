"""The lens as a grid in the terminal: layers from the last to the first, tokens side by side."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cutaway.methods.shortcut.lens_page import lens_table
from cutaway.report.terminal import PIPE_WIDTH

KIND_TITLES = {"id": "read as it is (logit lens)", "mat": "after a jump to the last layer"}


def print_lens(lens: Mapping[str, Any]) -> None:
    """Every kind's grid on stdout; a green cell is the full model's word."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)
    for kind in lens["kinds"]:
        console.print(terminal_grid(lens, kind))
    console.print(
        "Each cell: the likeliest next word and its probability in percent; * as the full model."
    )


def terminal_grid(lens: Mapping[str, Any], kind: str) -> Table:
    """One kind's grid; words come from the model and are never read as markup."""
    head, *rows = lens_table(lens, kind)
    grid = Table(title=f"{kind}: {KIND_TITLES.get(kind, 'after a fitted map')}", show_lines=False)
    for word in head:
        grid.add_column(Text(word), no_wrap=True)
    for row in rows:
        grid.add_row(*(Text(cell, style="green" if cell.endswith("*") else "") for cell in row))
    return grid
