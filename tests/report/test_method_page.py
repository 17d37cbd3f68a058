import subprocess
import sys

import pytest

from cutaway.catalog import method_module, methods
from cutaway.report.figures import figures_of
from cutaway.report.method_page import MethodPage

LIGHT = """
import sys
from cutaway.catalog import method_module
method_module({method!r}, {part!r})
heavy = {{"torch", "transformers"}} & set(sys.modules)
assert not heavy, heavy
"""


@pytest.mark.parametrize("method", methods())
def test_a_page_shows_every_figure_of_its_method_once(method: str) -> None:
    page = method_module(method, "page").PAGE
    assert isinstance(page, MethodPage) and page.method == method
    names = [name for view in page.views.values() for name in view]
    assert sorted(names) == sorted(figures_of(method))
    assert set(page.baselines_stay) <= set(page.filters)


@pytest.mark.parametrize("method", methods())
@pytest.mark.parametrize("part", ["figures", "page", "table", "spec"])
def test_what_the_report_needs_of_a_method_loads_without_torch(method: str, part: str) -> None:
    subprocess.run([sys.executable, "-c", LIGHT.format(method=method, part=part)], check=True)
