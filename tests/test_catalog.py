"""The catalog: rows are complete, light, and lead to modules that are there."""

import subprocess
import sys

import pytest

from cutaway.catalog import GROUPS, VERBS, method_module, methods, verbs_of
from cutaway.report.method_page import MethodPage
from cutaway.report.method_table import MethodTable


@pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: verb.words)
def test_a_row_leads_to_a_spec_and_names_only_its_fields(verb) -> None:
    fields = set(verb.spec_class.model_fields)
    assert {*verb.form, *verb.objects, *filter(None, [verb.first])} <= fields
    assert verb.help.endswith((".", "?"))
    assert verb in list(verbs_of(verb.method))


@pytest.mark.parametrize("method", methods())
def test_a_method_has_a_page_a_table_and_the_figures_of_its_page(method) -> None:
    page, figures = method_module(method, "page").PAGE, method_module(method, "figures").FIGURES
    assert isinstance(page, MethodPage)
    assert isinstance(method_module(method, "table").TABLE, MethodTable)
    assert {name for names in page.views.values() for name in names} <= set(figures)


def test_groups_are_the_first_words_of_verbs_with_two() -> None:
    assert set(GROUPS) == {words.split()[0] for words in VERBS if " " in words}


@pytest.mark.parametrize("part", ["spec", "figures", "page", "table", "verdict"])
@pytest.mark.parametrize("method", methods())
def test_what_describes_a_method_loads_without_torch(method, part) -> None:
    code = (
        f"import cutaway.methods.{method}.{part}, sys; "
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_reading_the_catalog_loads_no_method() -> None:
    code = "import cutaway.catalog, sys; print([m for m in sys.modules if 'methods' in m])"
    words = [sys.executable, "-c", code]
    assert subprocess.run(words, capture_output=True, text=True).stdout.strip() == "[]"
