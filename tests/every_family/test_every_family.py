"""Every family of transformers opens and passes every check, or is refused with the reason.

A part of the families is tried in every run of the tests; `make test-families` tries all of them.
"""

import os
from pathlib import Path

import pytest

from cutaway.core.errors import CutawayError
from cutaway.models.check import check
from cutaway.models.load import open_model
from tests.every_family.build import EVERY_FAMILY, tiny_of
from tests.every_family.outcomes import NOT_BUILT, OPEN, REFUSED
from tests.every_family.table import docs_section

DOCS = Path(__file__).parents[2] / "docs" / "models.md"
ALL = bool(os.environ.get("CUTAWAY_EVERY_FAMILY"))
STEP = 1 if ALL else 12
# Libraries that are not installed, and shapes that only a tiny model has.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.mark.parametrize(("family", "kind"), OPEN[::STEP])
def test_the_family_opens_and_passes_every_check(family, kind, tmp_path) -> None:
    lm = open_model(tiny_of(family, kind, tmp_path))
    report = check(lm)
    assert {one.verdict for one in report.checks} == {"fine"}
    assert report.kind == kind


@pytest.mark.parametrize(("family", "kind"), list(REFUSED)[::STEP])
def test_the_family_is_refused_with_the_reason(family, kind, tmp_path) -> None:
    folder = tiny_of(family, kind, tmp_path)
    with pytest.raises(CutawayError) as caught:
        open_model(folder)
    message = str(caught.value)
    assert REFUSED[family, kind] in message
    assert "\n" not in message
    assert caught.value.exit_status == 2


def test_every_family_has_one_outcome() -> None:
    named = [*OPEN, *REFUSED, *NOT_BUILT]
    assert sorted(named) == sorted(EVERY_FAMILY)


def test_the_page_about_models_has_these_outcomes() -> None:
    assert docs_section() in DOCS.read_text()
