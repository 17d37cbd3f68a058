import csv
import io
import os
import shutil
import sys

import pytest

from cutaway.core.errors import BadSpec, Missing
from cutaway.methods.probe import details
from cutaway.methods.probe.figures import FIGURES
from cutaway.report import export
from cutaway.report.figures import figures
from tests.report.fake_runs import FakeRecord, probe_details, probe_rows, save_run


def read(figure) -> list[dict]:
    return list(csv.DictReader(io.StringIO(export.figure_csv(figure))))


def test_the_csv_of_a_line_figure_holds_every_point_with_its_interval() -> None:
    rows = probe_rows(classifiers=("logistic", "lda"))
    lines = read(FIGURES["layers"](rows, FakeRecord(rows)))
    mine = [line for line in lines if line["series"] == "lda"]
    assert [line["layers"] for line in mine] == [str(n) for n in range(13)]
    assert all(float(m["low"]) <= float(m["y"]) <= float(m["high"]) for m in mine)


def test_every_figure_gives_a_csv_with_a_line_per_point(tmp_path) -> None:
    (tmp_path / details.DETAILS_FILE).write_bytes(details.dump_details(probe_details(points=50)))
    rows = probe_rows(pools=("last", "mean"))
    drawn = figures(rows, FakeRecord(rows, path=tmp_path))
    assert {"layers", "heatmap", "classifiers", "confusion", "roc", "projection"} <= set(drawn)
    for name, figure in drawn.items():
        assert read(figure), name
    assert sum(int(line["count"]) for line in read(drawn["confusion"])) == 50
    squares = read(drawn["heatmap"])
    assert len(squares) == 26 and {s["y"] for s in squares} == {"last", "mean"}


def test_names_come_out_of_the_csv_as_they_went_in_but_never_as_formulas() -> None:
    rows = probe_rows(classifiers=("a<b>&c", "=1+1"))
    names = {line["series"] for line in read(FIGURES["layers"](rows, FakeRecord(rows)))}
    assert "a<b>&c" in names and "'=1+1" in names


def test_unknown_picture_formats_are_refused_before_a_browser_starts(tmp_path) -> None:
    with pytest.raises(BadSpec, match="png, svg, pdf"):
        export.write_pictures({}, tmp_path, formats=("gif",))


def test_without_kaleido_the_message_holds_the_pip_line(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "kaleido", None)
    with pytest.raises(Missing, match=r"pip install 'cutaway\[figures\]'"):
        export.write_pictures({}, tmp_path)


@pytest.mark.browser
def test_a_run_becomes_pictures_of_every_kind(tmp_path, monkeypatch) -> None:
    chromium = shutil.which("chromium") or os.environ.get("BROWSER_PATH")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    monkeypatch.setenv("BROWSER_PATH", chromium)
    record = save_run(tmp_path / "runs")
    made = export.write_run_pictures(record, tmp_path / "out", formats=export.PICTURE_FORMATS)
    starts = {".png": b"\x89PNG", ".svg": b"<svg", ".pdf": b"%PDF", ".csv": b"series"}
    assert {p.suffix for p in made} == set(starts)
    assert all(p.read_bytes().startswith(starts[p.suffix]) for p in made)
