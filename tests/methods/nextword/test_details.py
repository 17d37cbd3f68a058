"""`nextword.json`: details for figures."""

import json

import pytest

from cutaway.core.errors import Corrupt
from cutaway.methods.nextword.details import DETAIL_FIELDS, DETAILS_FILE, read_details
from cutaway.report.records import CombinedRuns
from tests.methods.nextword.run_rows import ALL, DETAILS
from tests.report.fake_runs import FakeRecord


def test_details_of_several_runs_keep_their_models_apart(record, tmp_path) -> None:
    other = FakeRecord(ALL, method="nextword", path=tmp_path, address="f" * 16)
    models = {d["model"] for d in read_details(CombinedRuns((record, other)), "tokens")}
    assert models == {"m [0123]", "m [ffff]"}


def test_damaged_details_are_refused(record, tmp_path) -> None:
    (tmp_path / DETAILS_FILE).write_text('[{"figure": "tokens"}]')
    with pytest.raises(Corrupt, match="can't be read"):
        read_details(record, "tokens")


@pytest.mark.parametrize("figure", DETAIL_FIELDS)
def test_details_of_a_figure_are_read_as_they_were_saved(figure: str, record) -> None:
    assert read_details(record, figure) == [d for d in DETAILS if d["figure"] == figure]


def test_a_run_without_the_file_has_no_details(tmp_path) -> None:
    assert read_details(FakeRecord(ALL, method="nextword", path=tmp_path), "tokens") == []
    assert read_details(FakeRecord(ALL, method="nextword", path=None), "tokens") == []


@pytest.mark.parametrize("content", ["{", "3", "[3]", '[{"figure": "unknown"}]'])
def test_any_damage_is_refused_with_the_file_and_a_remedy(content: str, record, tmp_path) -> None:
    (tmp_path / DETAILS_FILE).write_text(content)
    with pytest.raises(Corrupt, match=r"nextword\.json can't be read.*Delete it"):
        read_details(record, "tokens")


def test_every_field_of_a_detail_is_needed(record, tmp_path) -> None:
    for detail in DETAILS:
        for field in DETAIL_FIELDS[detail["figure"]]:
            damaged = {name: value for name, value in detail.items() if name != field}
            (tmp_path / DETAILS_FILE).write_text(json.dumps([damaged]))
            with pytest.raises(Corrupt, match=field):
                read_details(record, detail["figure"])
