"""The app's page of nextword."""

from cutaway.methods.nextword.figures import FIGURES
from cutaway.methods.nextword.page import PAGE
from cutaway.methods.nextword.rows import NEXTWORD_SCHEMA


def test_every_figure_of_the_page_exists_and_every_figure_is_on_the_page() -> None:
    shown = [name for names in PAGE.views.values() for name in names]
    assert sorted(shown) == sorted(FIGURES)


def test_the_page_filters_by_columns_of_the_rows() -> None:
    assert set(PAGE.filters) <= set(NEXTWORD_SCHEMA)
