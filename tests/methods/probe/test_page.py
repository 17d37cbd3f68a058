"""The app's page of probe."""

from types import SimpleNamespace

import pytest

from cutaway.methods.probe.figures import FIGURES
from cutaway.methods.probe.page import PAGE, supports
from cutaway.methods.probe.rows import SCHEMA


def test_every_figure_of_the_page_exists_and_every_figure_is_on_the_page() -> None:
    shown = [name for names in PAGE.views.values() for name in names]
    assert sorted(shown) == sorted(FIGURES)


def test_the_page_filters_by_columns_of_the_rows() -> None:
    assert set(PAGE.filters) <= set(SCHEMA)
    assert set(PAGE.baselines_stay) <= set(PAGE.filters)


@pytest.mark.parametrize("has_head", [True, False])
def test_every_model_is_supported_with_or_without_a_language_model_head(has_head: bool) -> None:
    assert supports(SimpleNamespace(has_head=has_head)) == "yes"
