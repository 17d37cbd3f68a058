"""The app's page of graft shows every figure once."""

from cutaway.methods.graft.figures import FIGURES
from cutaway.methods.graft.page import PAGE
from cutaway.methods.graft.rows import GRAFT_SCHEMA


def test_every_figure_is_on_the_page_once() -> None:
    shown = [name for names in PAGE.views.values() for name in names]
    assert sorted(shown) == sorted(FIGURES)


def test_the_filters_are_columns_of_the_rows() -> None:
    assert set(PAGE.filters) <= set(GRAFT_SCHEMA)
