import json

import pytest

from cutaway.cli.main import run
from cutaway.cli.sources import _folder_name


@pytest.mark.parametrize(
    ("name", "folder"),
    [("hf:glue/sst2", "glue-sst2"), ("gen:tense", "tense"), ("sst2", "sst2"), ("::", "set")],
)
def test_a_data_set_gets_a_folder_name_without_separators(name: str, folder: str) -> None:
    assert _folder_name(name) == folder


def test_a_generated_data_set_is_written_as_files(tmp_path, capsys) -> None:
    assert run(["data", "get", "gen:tense?n=40", "--out", str(tmp_path / "t"), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)["written"]
    assert written and all(path.startswith(str(tmp_path)) for path in written)


def test_the_same_seed_gives_the_same_sentences(tmp_path, capsys) -> None:
    texts = []
    for name in ("a.txt", "b.txt"):
        words = ["data", "sentences", "--n", "20", "--seed", "3", "--out", str(tmp_path / name)]
        assert run(words) == 0
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1] and len(texts[0].splitlines()) == 20
