import pytest

from cutaway.catalog import VERBS
from cutaway.core.errors import BadSpec, UnknownName
from cutaway.studies.findings import find_study, known_studies

STUDIES = sorted(known_studies())


@pytest.mark.parametrize("name", STUDIES)
def test_every_bundled_study_uses_known_verbs_and_options(name: str) -> None:
    study = known_studies()[name]
    assert study.name == name and "model" in study.defaults
    for step in study.steps:
        assert set(step.fields) <= set(VERBS[step.verb].spec_class.model_fields), step.name


def test_an_unknown_study_lists_similar_names() -> None:
    with pytest.raises(UnknownName, match="probe"):
        find_study("prob")


def test_a_file_that_is_not_text_is_refused(tmp_path) -> None:
    (tmp_path / "mine.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadSpec, match="Save it as UTF-8"):
        find_study(str(tmp_path / "mine.toml"))
