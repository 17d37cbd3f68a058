"""Figures that are drawn from the details of a run."""

import json
from types import SimpleNamespace

import pytest

from cutaway.core.errors import Missing
from cutaway.methods.inject.figures_weights import fisher_at_top_entries, weight_map
from cutaway.methods.inject.rows import DETAILS_FILE, inject_frame

ROWS = inject_frame([])


def run(folder, **details) -> SimpleNamespace:
    (folder / DETAILS_FILE).write_text(json.dumps({"tops": [], "maps": [], **details}))
    return SimpleNamespace(path=str(folder))


def test_each_fisher_is_drawn_as_points_and_a_line_in_each_panel(tmp_path) -> None:
    curves = {
        "skill": {"values": [3.0, 2.0, 1.0], "mean": [2.5, 2.0, 1.5]},
        "docs": {"values": [0.1, 0.2, 0.3], "mean": [0.2, 0.2, 0.2]},
    }
    tops = [{"where": where, "curves": curves} for where in ("all layers", "layer 1", "layer 4")]
    figure = fisher_at_top_entries(ROWS, run(tmp_path, tops=tops))
    assert len(figure.data) == 3 * 2 * 2
    assert list(figure.data[0].y) == [3.0, 2.0, 1.0]
    assert list(figure.data[0].x) == [1, 2, 3]
    assert [trace.name for trace in figure.data if trace.showlegend] == ["skill", "docs"]
    assert [note.text for note in figure.layout.annotations][:3] == [t["where"] for t in tops]


def test_a_map_shows_the_base_and_the_first_seed_of_every_training(tmp_path) -> None:
    points = {"base": [[0, 0]], "ewc-1-seed0": [[1, 1]], "ewc-1-seed1": [[2, 2]]}
    maps = [{"layer": i, "way": way, "points": points} for i in (1, 4) for way in ("pca", "tsne")]
    figure = weight_map(ROWS, run(tmp_path, maps=maps))
    assert len(figure.data) == 4 * 2
    assert {trace.name for trace in figure.data} == {"base", "ewc-1"}
    assert all(list(trace.x) == [1] for trace in figure.data if trace.name == "ewc-1")
    symbols = {trace.name: trace.marker.symbol for trace in figure.data}
    assert symbols == {"base": "circle-open", "ewc-1": "circle"}


@pytest.mark.parametrize("figure", [fisher_at_top_entries, weight_map])
def test_a_run_without_details_says_which_options_keep_them(figure, tmp_path) -> None:
    for record in (run(tmp_path), SimpleNamespace(path=str(tmp_path / "none")), None):
        with pytest.raises(Missing, match="--clash"):
            figure(ROWS, record)
