import ast
from pathlib import Path

import plotly.graph_objects as go
import pytest

import cutaway
from cutaway.catalog import methods
from cutaway.core.errors import CutawayError, Missing, UnknownName
from cutaway.report.figures import figure, figures, figures_of, try_figures
from tests.report.fake_runs import FakeRecord, probe_details, probe_rows, save_run


@pytest.mark.parametrize("method", methods())
def test_every_method_has_figures(method: str) -> None:
    assert figures_of(method) and all(callable(draw) for draw in figures_of(method).values())


def test_a_method_that_is_not_in_the_catalog_has_no_figures() -> None:
    assert figures_of("elsewhere") == {}
    record = FakeRecord(probe_rows(), method="elsewhere")
    assert figures(record.rows, record) == {}
    with pytest.raises(UnknownName, match="elsewhere"):
        figure(record, "layers")


def test_an_unknown_figure_suggests_a_similar_name(tmp_path) -> None:
    with pytest.raises(UnknownName, match="layers"):
        figure(save_run(tmp_path), "layer")


def test_every_figure_is_drawn_or_its_reason_is_given(tmp_path) -> None:
    bare = save_run(tmp_path, address="a1")
    tried = dict(try_figures(bare.rows, bare))
    assert list(tried) == list(figures_of("probe"))
    assert isinstance(tried["layers"], go.Figure) and isinstance(tried["roc"], Missing)
    assert all(isinstance(one, go.Figure | CutawayError) for one in tried.values())
    full = save_run(tmp_path, entries=probe_details(points=20), address="b2")
    assert set(figures(bare.rows, bare)) < set(figures(full.rows, full))


def test_no_caption_of_a_picture_file_asks_to_hover() -> None:
    source, captions = Path(cutaway.__file__).parent, 0
    for file in source.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "caption":
                captions += 1
                assert "hover" not in ast.unparse(node.value).lower(), f"{file}: use pointer="
    assert captions > 20
