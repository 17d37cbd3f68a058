"""Whatever a file, a folder or an option says, no control character reaches the terminal."""

import json
import unicodedata

import polars as pl
import pytest

from cutaway.cli.main import run
from cutaway.console import HIDDEN
from tests.store.samples import keep

ODD = "\x1b]0;title\x07\x1b[2J\x9b31m"


@pytest.fixture
def given(tmp_path, monkeypatch):
    """Files of others with escape sequences wherever a name or a text can be."""
    monkeypatch.chdir(tmp_path)
    model = tmp_path / f"model{ODD}"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"model_type": f"llama{ODD}"}))
    pl.DataFrame({f"text{ODD}": [f"a{ODD}"] * 4}).write_parquet(f"data{ODD}.parquet")
    (tmp_path / "data.tsv").write_text(f"text{ODD}\tlabel\na{ODD}\t1{ODD}\nb\t0\nc\n")
    (tmp_path / "bad.json").write_text(f'{{"a{ODD}": ')
    (tmp_path / "spec.toml").write_text(f'verb = "probe"\n"{json.dumps(ODD)[1:-1]}" = 1\n')
    table = pl.DataFrame(
        {"layers": [f"1{ODD}"], f"x{ODD}": [1], "metric": ["accuracy"], "value": [1.0]}
    )
    keep(
        tmp_path / "runs", table, address="a1", model={"name": ODD}, data={"name": ODD},
        command=f"cutaway {ODD}", summary={"verdict": [ODD], ODD: ODD},
    )  # fmt: skip
    keep(tmp_path / "runs", address="b2")
    (tmp_path / "runs" / "probe" / "b2" / "result.json").write_text(f"{{{ODD}")
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["check", f"model{ODD}"],
        ["check", f"nosuch{ODD}"],
        ["probe", "--model", f"model{ODD}", "--data", "data.tsv"],
        ["probe", "--model", "x", "--data", f"data{ODD}.parquet"],
        ["probe", "--model", "x", "--data", "data.tsv", "--protocol", ODD],
        ["probe", "--model", "x", "--data", "data.tsv", f"--{ODD}", "1"],
        [f"verb{ODD}"],
        ["nextword", "--model", "x", "--task", ODD],
        ["data", "get", "bad.json", "--out", ODD],
        ["data", "get", f"data{ODD}.parquet", "--out", "o"],
        ["data", "get", "data.tsv", "--out", "o"],
        ["run", "spec.toml"],
        ["ls"],
        ["ls", "--json"],
        ["ls", "--runs", ODD],
        ["show", "a1"],
        ["show", "a1", "--json"],
        ["show", ODD],
        ["query", "select * from rows"],
        ["query", "select * from rows", "--format", "csv"],
        ["query", "select * from rows", "--format", "markdown"],
        ["query", "select * from rows", "--format", "latex"],
        ["query", "select * from rows", "--json"],
        ["query", "select chr(27) || chr(155)"],
        ["query", f"select {ODD}"],
        ["query", f"select '{ODD}'::int"],
        ["report", "a1", "--table", "csv"],
        ["report", "a1", "--table", "markdown"],
        ["report", ODD],
        ["import", ODD],
        ["cache", "ls"],
    ],
    ids=lambda words: " ".join(words[:3]).encode("ascii", "backslashreplace").decode(),
)
def test_no_control_character_reaches_the_terminal(given, words, capsys) -> None:
    run(words)
    out, err = capsys.readouterr()
    assert out + err
    shown = {c for c in out + err if c not in "\n\t" and unicodedata.category(c) in HIDDEN}
    assert not shown
