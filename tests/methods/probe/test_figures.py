"""Laws over the whole table of figures."""

import json

import plotly.graph_objects as go
import polars as pl
import pytest

from cutaway.core.errors import Corrupt, Missing
from cutaway.methods.probe import details
from cutaway.methods.probe.figures import FIGURES
from cutaway.report import theme
from cutaway.report.figures import figure, figures, try_figures
from cutaway.report.records import CombinedRuns
from tests.report.fake_runs import SIZES, FakeRecord, failed_rows, probe_details, probe_rows

NASTY = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run folder with details for a few cells."""
    path = tmp_path_factory.mktemp("run")
    entries = probe_details(layers=("7", "9"), classifiers=("logistic", "lda"))
    (path / details.DETAILS_FILE).write_bytes(details.dump_details(entries))
    return path


@pytest.fixture(scope="module")
def everything(folder):
    """A record that has something to draw for every figure."""
    rows = probe_rows(
        models=tuple(SIZES),
        layers=("5", "7", "9", "mean:all"),
        pools=("last", "mean"),
        classifiers=("logistic", "lda"),
        sizes=(140, 1400),
        repeats=2,
    )
    models = [{"name": name, "parameters": size} for name, size in SIZES.items()]
    return FakeRecord(rows, path=folder, model=models)


@pytest.fixture(scope="module")
def drawn(everything):
    return figures(everything.rows, everything)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_title_axes_and_a_sentence_on_how_to_read_it(drawn, name: str) -> None:
    one = drawn[name]
    assert one.layout.title.text
    assert len(theme.caption(one)) > 40 and theme.caption(one).endswith(".")
    axes = [a for a in (*one.select_xaxes(), *one.select_yaxes()) if a.title.text]
    assert len(axes) >= 2
    assert any(trace.type for trace in one.data)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_without_its_data_says_what_is_missing(name: str) -> None:
    rows = probe_rows(layers=("3",)).filter(pl.col("kind") == "baseline")
    with pytest.raises(Missing, match=r"[a-z]{3}"):
        FIGURES[name](rows, FakeRecord(rows))


@pytest.mark.parametrize("name", FIGURES)
def test_names_from_data_are_never_markup_in_a_figure(tmp_path, name: str) -> None:
    rows = probe_rows(
        models=("a", NASTY),
        sets=(NASTY,),
        layers=("5", "7", NASTY),
        pools=(NASTY, "mean"),
        classifiers=(NASTY,),
        sizes=(100, 1000),
        repeats=2,
    )
    entries = probe_details(NASTY, NASTY, ("7",), NASTY, (NASTY,), classes=("a", NASTY))
    (tmp_path / details.DETAILS_FILE).write_bytes(details.dump_details(entries))
    models = [{"name": "a", "parameters": 10**6}, {"name": NASTY, "parameters": 10**7}]
    one = FIGURES[name](rows, FakeRecord(rows, path=tmp_path, model=models))
    content = one.to_plotly_json()
    content["layout"].pop("meta")  # plain text, escaped by whoever shows it
    for trace in content["data"]:
        if trace["type"] != "heatmap":
            trace.pop("customdata", None)  # data for the CSV, never part of a hover text
    assert "<img" not in json.dumps(content, default=str)


def test_only_the_trace_hover_reads_custom_data_that_is_escaped(drawn) -> None:
    for one in drawn.values():
        for trace in one.data:
            if trace.type != "heatmap":
                assert "customdata" not in (trace.hovertemplate or "")


def test_intervals_are_bands_while_lines_are_few_and_absent_where_none_is_known() -> None:
    def bands(rows: pl.DataFrame) -> int:
        one = FIGURES["layers"](rows, FakeRecord(rows))
        return sum(bool((t.meta or {}).get("band")) for t in one.data)

    rows = probe_rows(classifiers=("logistic", "lda"))
    assert bands(rows) == 2
    assert bands(rows.with_columns(low=None, high=None)) == 0
    assert bands(probe_rows(pools=("last", "mean"), classifiers=("logistic", "lda"))) == 0


def test_lines_left_out_are_counted_in_the_caption() -> None:
    rows = probe_rows(pools=("last", "mean", "max"), classifiers=("logistic", "lda", "nb"))
    one = FIGURES["layers"](rows, FakeRecord(rows))
    assert "3 more lines" in theme.caption(one)
    names = [t.name for t in one.data if t.mode == "lines+markers"]
    assert {n.split(" · ")[0] for n in names} == {"last", "mean", "max"}, "every colour is there"


def test_baselines_stand_in_the_layer_figure_under_their_names() -> None:
    rows = probe_rows()
    names = {t.name for t in FIGURES["layers"](rows, FakeRecord(rows)).data}
    assert {
        theme.BASELINE_STYLES[k][0] for k in ("majority", "bow", "tfidf", "twin", "control")
    } <= names


def test_imported_logs_without_baselines_or_intervals_are_drawn() -> None:
    rows = probe_rows(baselines=False).select("model", "data", "layers", "metric", "value")
    one = FIGURES["layers"](rows, FakeRecord(rows, summary={"imported": True}))
    assert [t.name for t in one.data] == ["probe"]


def test_failed_cells_leave_the_other_lines_standing() -> None:
    rows = failed_rows()
    names = [t.name for t in FIGURES["classifiers"](rows, FakeRecord(rows)).data]
    assert "probe" in names


def test_the_heat_map_frames_the_best_square(everything) -> None:
    rows = probe_rows(pools=("last", "mean"), layers=("1", "2", "3"))
    one = FIGURES["heatmap"](rows, FakeRecord(rows))
    frame, grid = one.layout.shapes[0], one.data[0]
    x, y = round(frame.x0 + 0.5), round(frame.y0 + 0.5)
    assert grid.z[y][x] == max(v for row in grid.z for v in row)


def test_confusion_adds_up_the_repeats(tmp_path) -> None:
    cell = {"model": "small-lm", "data": "gen:sentiment", "layers": "7", "pool": "last"}
    cell |= {"classifier": "logistic", "classes": ("a", "b")}
    entries = [details.ConfusionMatrix(**cell, repeat=i, counts=((3, 1), (0, 4))) for i in range(2)]
    (tmp_path / details.DETAILS_FILE).write_bytes(details.dump_details(entries))
    rows = probe_rows()
    one = FIGURES["confusion"](rows, FakeRecord(rows, path=tmp_path))
    assert [list(r) for r in one.data[0].text] == [[6, 2], [0, 8]]
    assert one.data[0].z[0][0] == 0.75


def test_detail_figures_follow_the_filter_on_rows(everything) -> None:
    rows = everything.rows.filter((pl.col("classifier") == "lda") & (pl.col("model") == "small-lm"))
    assert "lda on layer" in theme.caption(FIGURES["scores"](rows, everything))


def test_many_points_are_thinned_and_the_caption_says_so(tmp_path) -> None:
    entries = probe_details(points=3000)
    (tmp_path / details.DETAILS_FILE).write_bytes(details.dump_details(entries))
    rows = probe_rows()
    one = FIGURES["projection"](rows, FakeRecord(rows, path=tmp_path))
    assert sum(len(t.x) for t in one.data) == 2000
    assert "2000 of 3000" in theme.caption(one)


def test_several_runs_are_drawn_as_one() -> None:
    records = [FakeRecord(probe_rows(models=(name,)), model={"name": name, "parameters": size})
               for name, size in SIZES.items()]  # fmt: skip
    both = CombinedRuns(tuple(records))
    one = FIGURES["sizes"](both.rows, both)
    line = next(t for t in one.data if t.mode == "lines+markers")
    assert list(line.x) == sorted(SIZES.values())


def test_damaged_details_spoil_only_the_figures_that_need_them(tmp_path) -> None:
    (tmp_path / details.DETAILS_FILE).write_text("[{")
    rows = probe_rows()
    tried = dict(try_figures(rows, FakeRecord(rows, path=tmp_path)))
    assert isinstance(tried["layers"], go.Figure)
    assert isinstance(tried["roc"], Corrupt)


def test_a_figure_is_asked_for_by_name(everything) -> None:
    assert figure(everything, "layers").layout.title.text == "Accuracy by layer"
    with pytest.raises(Exception, match="Did you mean 'layers'"):
        figure(everything, "layer")


def test_five_thousand_rows_are_drawn_within_a_second() -> None:
    import time

    rows = probe_rows(layers=tuple(map(str, range(31))), pools=("last", "mean"), repeats=9,
                      classifiers=("logistic", "lda", "nb"), baselines=True)  # fmt: skip
    assert rows.height > 5000
    start = time.process_time()
    FIGURES["layers"](rows, FakeRecord(rows))
    assert time.process_time() - start < 1.0
