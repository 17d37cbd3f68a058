"""The page of shortcut in the app."""

from types import SimpleNamespace

import pytest

from cutaway.methods.shortcut.figures import FIGURES
from cutaway.methods.shortcut.page import PAGE, supports
from cutaway.methods.shortcut.rows import SCHEMA


def test_every_figure_is_shown_once() -> None:
    shown = [name for names in PAGE.views.values() for name in names]
    assert sorted(shown) == sorted(FIGURES)


def test_filters_are_columns_of_the_rows() -> None:
    assert set(PAGE.filters) <= set(SCHEMA)


@pytest.mark.parametrize(
    ("has_head", "mlp", "answer"),
    [(True, "mlp", "yes"), (True, None, "without sub-modules"), (False, "mlp", "layers only")],
)
def test_support_depends_on_the_head_and_the_known_parts(has_head, mlp, answer) -> None:
    lm = SimpleNamespace(has_head=has_head, anatomy=SimpleNamespace(mlp=mlp))
    assert answer in supports(lm)
