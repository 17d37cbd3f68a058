"""The lens in the terminal."""

from cutaway.methods.shortcut.lens_terminal import print_lens, terminal_grid
from tests.methods.shortcut.test_lens_page import LENS


def test_every_kind_is_printed_with_its_title(capsys) -> None:
    print_lens(LENS)
    printed = capsys.readouterr().out
    assert "id: without a map (logit lens)" in printed
    assert "* agrees with the full model" in " ".join(printed.split())


def test_cells_that_agree_are_green_and_markup_is_printed_literally() -> None:
    grid = terminal_grid({**LENS, "tokens": ["[bold]", " b"]}, "id")
    assert str(grid.columns[1].header) == "[bold]"
    styles = [[cell.style for cell in column.cells] for column in grid.columns]
    assert styles == [["", ""], ["green", ""], ["green", "green"]]
