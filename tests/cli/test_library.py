import json

from cutaway.cli.main import run
from tests.report.fake_runs import save_run


def test_runs_are_listed_and_filtered_by_method(tmp_path, capsys) -> None:
    record = save_run(tmp_path)
    assert run(["ls", "--runs", str(tmp_path), "--json"]) == 0
    assert [one["address"] for one in json.loads(capsys.readouterr().out)] == [record.address]
    assert run(["ls", "--runs", str(tmp_path), "--method", "graft", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_damaged_run_is_named_on_stderr_and_the_others_are_listed(tmp_path, capsys) -> None:
    save_run(tmp_path, address="a1")
    broken = save_run(tmp_path, address="b2")
    (broken.path / "result.json").write_text("{")
    assert run(["ls", "--runs", str(tmp_path), "--json"]) == 0
    out = capsys.readouterr()
    assert [one["address"] for one in json.loads(out.out)] == ["a1"]
    assert "b2" in out.err and "can't be read" in out.err


def test_a_run_is_shown_by_the_first_characters_of_its_address(tmp_path, capsys) -> None:
    record = save_run(tmp_path)
    assert run(["show", record.address[:4], "--runs", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "reads it best" in out and record.command in " ".join(out.split())


def test_sql_results_are_printed_in_the_chosen_format(tmp_path, capsys) -> None:
    save_run(tmp_path)
    sql = "select count(*) as n from runs"
    assert run(["query", sql, "--runs", str(tmp_path), "--format", "csv"]) == 0
    assert capsys.readouterr().out == "n\n1\n"
    assert run(["query", sql, "--runs", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"n": 1}]


def test_a_report_of_one_run_is_written(tmp_path, capsys) -> None:
    record, page = save_run(tmp_path / "runs"), tmp_path / "page.html"
    words = ["report", record.address, "--runs", str(tmp_path / "runs"), "--html", str(page)]
    assert run(words) == 0 and page.read_text().startswith("<!DOCTYPE html>")
    assert str(page) in capsys.readouterr().out


def test_a_report_without_addresses_draws_the_newest_runs_and_says_so(
    tmp_path, capsys, monkeypatch
) -> None:
    monkeypatch.setattr("cutaway.cli.library.MAX_DRAWN", 2)
    addresses = [save_run(tmp_path / "runs", address=f"zqx{i}zqx").address for i in range(4)]
    words = ["report", "--runs", str(tmp_path / "runs")]
    page = tmp_path / "page.html"
    assert run([*words, "--html", str(page)]) == 0
    assert "The newest 2 of 4 runs. Name others" in capsys.readouterr().err
    text = page.read_text()
    assert "The newest 2 of 4 runs." in text
    assert [one in text for one in addresses] == [False, False, True, True]
    assert run([*words, "--html", str(page), "--newest", "3"]) == 0
    assert [one in page.read_text() for one in addresses] == [False, True, True, True]
    assert run([*words, "--table", "csv"]) == 0
    said = capsys.readouterr()
    assert all(one in said.out for one in addresses) and "newest" not in said.err.splitlines()[-1:]
    assert run([*words, "--newest", "0"]) == 2
    assert run([*words, "--method", "graft"]) == 2


def test_a_list_as_json_is_the_list_of_all_briefs(tmp_path, capsys) -> None:
    records = [save_run(tmp_path, address=f"a{i}", command="\x1b[1m") for i in range(3)]
    assert run(["ls", "--runs", str(tmp_path), "--json"]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert json.loads(said) == [one.brief() for one in reversed(records)]
