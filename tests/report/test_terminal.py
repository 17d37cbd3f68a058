import io

import pytest
from rich.console import Console

from cutaway.core.errors import Missing
from cutaway.report import terminal
from cutaway.report.overview import overview_table
from cutaway.report.write import write_report
from tests.report.fake_runs import FakeRecord, failed_rows, probe_rows, save_run

CHECK = {
    "name": "tiny",
    "family": "llama",
    "layers": 2,
    "digest": "ab" * 32,
    "tied": True,
    "tokenizer": {"class": "Fast", "adds_in_front": ["<s>"], "adds_behind": [], "pad_token": None},
    "checks": [{"name": "hooks", "measured": 1e-7, "noise": 2e-7, "verdict": "fine", "detail": ""}],
    "memory": {"probe": 4_000_000},
    "supports": {"probe": "yes", "inject": "no: no head"},
    "estimates": {"weights": 538_000_000},
    "notes": ["[bold]a note[/bold]"],
    "passed": True,
}


def shown(what) -> str:
    out = io.StringIO()
    Console(file=out, width=160, color_system=None).print(what)
    return out.getvalue()


def test_each_run_is_one_line_with_address_score_and_time(tmp_path) -> None:
    records = [save_run(tmp_path, address=f"a{i}") for i in range(3)]
    lines = terminal.runs_lines(overview_table(records), 160)
    assert len(lines) == 4
    assert "accuracy 0.7" in lines[1] and "a0" in lines[1] and "1 min 23 s" in lines[1]


def test_no_runs_say_how_to_make_some(capsys) -> None:
    terminal.print_runs(overview_table([]))
    assert "cutaway tour" in capsys.readouterr().out


def test_a_run_shows_verdict_numbers_failures_provenance_and_command(tmp_path) -> None:
    text = shown(terminal.record_view(save_run(tmp_path, failed_rows())))
    for part in ("reads it best", "tfidf", "singular matrix", "digest", "cutaway probe --model"):
        assert part in text


def test_unreadable_rows_leave_the_rest_of_the_run_readable(tmp_path) -> None:
    record = save_run(tmp_path)
    (record.path / "rows.parquet").write_bytes(b"junk")
    text = shown(terminal.record_view(record))
    assert "checksum" in text and "cutaway probe" in text


def test_text_from_data_can_not_steer_the_terminal() -> None:
    rows = probe_rows(layers=("1", "2"), classifiers=("\x1b[2J[red]x",))
    record = FakeRecord(rows, summary={"verdict": ["\x1b]0;owned\x07[blink]hm"]})
    text = shown(terminal.record_view(record))
    assert "\x1b" not in text and "[blink]hm" in text and "[red]x" in text


@pytest.mark.parametrize("passed", [True, False])
def test_a_trust_report_says_first_whether_every_law_holds(passed: bool) -> None:
    checks = [{**CHECK["checks"][0], "verdict": "noisy" if passed else "wrong"}]
    text = shown(terminal.check_view({**CHECK, "passed": passed, "checks": checks}))
    assert ("all 1 consistency checks passed" if passed else "FAILED") in text.splitlines()[0]
    for part in (
        "1.00e-07",
        "2.00e-07",
        checks[0]["verdict"],
        "538 MB",
        "no: no head",
        "[bold]a note",
        "<s>",
    ):
        assert part in text


def test_printing_goes_to_stdout(tmp_path, capsys) -> None:
    record = save_run(tmp_path)
    terminal.print_runs(overview_table([record]))
    terminal.print_record(record)
    terminal.print_check(CHECK)
    assert "all 1 consistency checks passed" in capsys.readouterr().out


def test_a_report_is_a_page_unless_something_else_is_asked_for(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    record = save_run(tmp_path / "runs")
    assert "report.html" in write_report([record])[0]
    assert (tmp_path / "report.html").stat().st_size > 1e6
    (table,) = write_report([record], table="markdown")
    assert table.startswith("## probe") and "model small-lm" in table
    assert write_report([record], table="csv")[0].startswith("model,data,kind")
    with pytest.raises(Missing):
        write_report([])
