"""The app's page of nextword."""

from types import SimpleNamespace

import pytest

from cutaway.methods.nextword.figures import FIGURES
from cutaway.methods.nextword.page import PAGE, supports
from cutaway.methods.nextword.rows import NEXTWORD_SCHEMA


def test_every_figure_of_the_page_exists_and_every_figure_is_on_the_page() -> None:
    shown = [name for names in PAGE.views.values() for name in names]
    assert sorted(shown) == sorted(FIGURES)


def test_the_page_filters_by_columns_of_the_rows() -> None:
    assert set(PAGE.filters) <= set(NEXTWORD_SCHEMA)


@pytest.mark.parametrize(("has_head", "answer"), [(True, "yes"), (False, "no: the checkpoint")])
def test_a_model_without_a_language_model_head_is_not_supported(has_head, answer) -> None:
    assert supports(SimpleNamespace(has_head=has_head)).startswith(answer)
