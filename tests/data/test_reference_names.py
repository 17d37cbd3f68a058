import pytest

from cutaway.core.errors import BadData, Missing
from cutaway.data.reference_names import known_names, read_names
from cutaway.data.tasks import known_tasks
from cutaway.methods.probe.maths.classifiers import CLASSIFIERS


@pytest.mark.parametrize(
    ("table", "name", "ours"),
    [
        ("classifier", "LDA", "lda"),
        ("classifier", "SingleLayer", "linear"),
        ("classifier", "Single Layer", "linear"),
        ("data", "Stormfront hate speech", "hate_speech18"),
        ("data", "Stormfront hate speechwithout period", "hate_speech18 without period"),
        ("data", "My own set", "My own set"),
        ("model", "gpt2", "gpt2"),
    ],
)
def test_names_are_found_whatever_their_case_and_spaces(table, name, ours) -> None:
    assert known_names().name(table, name) == ours


def test_every_name_of_the_table_is_one_of_ours() -> None:
    tables = known_names().tables
    assert set(tables["classifier"].values()) <= set(CLASSIFIERS)
    assert {n.removesuffix(" without period") for n in tables["data"].values()} <= set(
        known_tasks()
    )


def test_the_users_table_comes_before_the_known_one(tmp_path) -> None:
    (tmp_path / "n.toml").write_text('[data]\n"Pants on fire" = "lies"\n[blocks]\nmine = 4\n')
    found = read_names(tmp_path / "n.toml")
    assert found.name("data", "pants on fire") == "lies"
    assert (found.find("blocks", "mine"), found.find("blocks", "gpt2")) == (4, 12)
    assert known_names().name("data", "Pants on fire") == "liar"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[clasifier]\na = 'b'", "unknown table \\[clasifier\\]. Did you mean 'classifier'"),
        ("[data]\na = 3", "'a' is 3, expected a name in quotes"),
        ("[data]\nA.b = 'c'", "A name with spaces or dots must be in quotes"),
        ("[blocks]\ngpt2 = 0", "'gpt2' is 0, expected a positive number"),
        ("data = 3", "must be a table"),
        ("[data", "not valid TOML"),
    ],
)
def test_a_table_with_an_error_is_refused(tmp_path, text: str, message: str) -> None:
    (tmp_path / "n.toml").write_text(text)
    with pytest.raises(BadData, match=message):
        read_names(tmp_path / "n.toml")


def test_a_table_that_is_not_there_is_missing(tmp_path) -> None:
    with pytest.raises(Missing, match="Check --names"):
        read_names(tmp_path / "gone.toml")
