"""The page of inject shows figures and filters that exist."""

from cutaway.methods.inject.figures import FIGURES
from cutaway.methods.inject.page import PAGE
from cutaway.methods.inject.rows import SCHEMA


def test_every_figure_is_on_the_page_once_and_filters_are_columns() -> None:
    shown = [name for names in PAGE.views.values() for name in names]
    assert sorted(shown) == sorted(FIGURES)
    assert set(PAGE.filters) <= set(SCHEMA)
    assert PAGE.method == "inject"
