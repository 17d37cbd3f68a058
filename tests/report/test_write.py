import csv
import io

import pytest

from cutaway.core.errors import Missing
from cutaway.report.write import write_report
from tests.report.fake_runs import probe_rows, save_run


def test_without_options_the_page_is_written_to_report_html(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = write_report([save_run(tmp_path / "runs")])
    assert line.startswith("Written: report.html") and (tmp_path / "report.html").is_file()


@pytest.mark.parametrize(("kind", "start"), [("markdown", "## probe"), ("latex", "% probe")])
def test_the_runs_of_a_method_share_one_table(tmp_path, kind: str, start: str) -> None:
    (one,) = write_report([save_run(tmp_path, address="a1")], table=kind)
    assert one.startswith(f"{start} a1: ")
    (text,) = write_report([save_run(tmp_path, address=n) for n in ("a1", "b2")], table=kind)
    assert text.startswith(f"{start}: 2 runs")
    assert text.count("classifier") == 1
    assert "a1" in text and "b2" in text


def test_names_that_all_lines_share_are_above_the_table_and_paths_are_short(tmp_path) -> None:
    model = "/data/checkpoints/small-lm"
    run = save_run(tmp_path / "runs", probe_rows(models=[model]))
    (text,) = write_report([run], table="markdown")
    assert "model small-lm" in text and model not in text
    assert "| model |" not in text
    two = save_run(tmp_path / "two", probe_rows(models=["/a/lm", "/b/lm", "/c/other"]))
    (text,) = write_report([two], table="markdown")
    assert all(f"| {name} |" in text for name in ("/a/lm", "/b/lm", "other"))


def test_csv_of_several_runs_has_one_header(tmp_path) -> None:
    runs = [save_run(tmp_path, address=n) for n in ("a1", "b2")]
    (text,) = write_report(runs, table="csv")
    lines = list(csv.DictReader(io.StringIO(text)))
    assert {(line["method"], line["run"]) for line in lines} == {("probe", "a1"), ("probe", "b2")}
    assert all(float(line["mean"]) >= 0 for line in lines if line["metric"] == "accuracy")


def test_csv_has_no_heading(tmp_path) -> None:
    (text,) = write_report([save_run(tmp_path)], table="csv")
    assert {"mean", "low", "high"} <= set(csv.DictReader(io.StringIO(text)).fieldnames or ())


def test_no_runs_are_refused_with_a_way_to_make_one() -> None:
    with pytest.raises(Missing, match="cutaway tour"):
        write_report([])


def test_out_is_the_file_of_the_page_or_of_the_table(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = save_run(tmp_path / "runs")
    (line,) = write_report([run], out=tmp_path / "x.html")
    assert "x.html" in line and (tmp_path / "x.html").read_text().startswith("<!DOCTYPE html")
    write_report([run], table="csv", out=tmp_path / "new" / "x.csv")
    assert (tmp_path / "new" / "x.csv").read_text() == write_report([run], table="csv")[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "runs", "x.html"]
