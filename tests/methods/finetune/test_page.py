"""The app's page of finetune shows every figure once."""

from cutaway.methods.finetune.figures import FIGURES
from cutaway.methods.finetune.page import PAGE
from cutaway.methods.finetune.rows import FINETUNE_SCHEMA


def test_every_figure_is_on_the_page_once() -> None:
    shown = [name for names in PAGE.views.values() for name in names]
    assert sorted(shown) == sorted(FIGURES)


def test_the_filters_are_columns_of_the_rows() -> None:
    assert set(PAGE.filters) <= set(FINETUNE_SCHEMA)
