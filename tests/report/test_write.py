import csv
import io

import pytest

from cutaway.core.errors import Missing
from cutaway.report.write import write_report
from tests.report.fake_runs import save_run


def test_without_options_the_page_is_written_to_report_html(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = write_report([save_run(tmp_path / "runs")])
    assert line.startswith("Written: report.html") and (tmp_path / "report.html").is_file()


@pytest.mark.parametrize(("kind", "start"), [("markdown", "## probe a1"), ("latex", "% probe a1")])
def test_a_table_per_run_has_a_heading(tmp_path, kind: str, start: str) -> None:
    texts = write_report([save_run(tmp_path, address=n) for n in ("a1", "b2")], table=kind)
    assert len(texts) == 2 and texts[0].startswith(start)


def test_csv_has_no_heading(tmp_path) -> None:
    (text,) = write_report([save_run(tmp_path)], table="csv")
    assert {"mean", "low", "high"} <= set(csv.DictReader(io.StringIO(text)).fieldnames or ())


def test_no_runs_are_refused_with_a_way_to_make_one() -> None:
    with pytest.raises(Missing, match="cutaway tour"):
        write_report([])
