"""A drawing is read back as it was saved; a damaged one is passed over."""

import json
import os

import pytest

from cutaway.core.errors import BadData
from cutaway.report.drawing.values import drawing_from
from cutaway.studies.draw.saved import (
    all_drawings,
    drawing_path,
    save_values,
    saved_drawings,
)


def test_a_saved_drawing_is_read_back_as_it_was(drawn, tmp_path) -> None:
    save_values(drawn.drawing, tmp_path, "/models/toy")
    assert saved_drawings(tmp_path, ["/models/toy", "/models/toy", "other"]) == [drawn.drawing]


def test_draw_keeps_the_values_beside_the_runs(drawn, place, toy) -> None:
    assert saved_drawings(place / "runs", [toy.name])[0].blocks == toy.layers


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"words": 3}', "null", '{"words": [], "tracks": [{"kind": "x"}]}'],
)
def test_a_damaged_drawing_is_passed_over(tmp_path, content) -> None:
    path = drawing_path(tmp_path, "m", ".json")
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert saved_drawings(tmp_path, ["m"]) == []


def test_a_track_of_an_unknown_kind_is_refused(drawn) -> None:
    saved = json.loads(json.dumps(drawn.drawing.saved()))
    saved["tracks"][0]["kind"] = "smell"
    with pytest.raises(BadData, match="smell"):
        drawing_from(saved)


def test_a_model_named_like_a_path_stays_in_the_folder(tmp_path) -> None:
    path = drawing_path(tmp_path, "../../etc/passwd", ".json")
    assert path.parent == tmp_path / "drawings"


def test_all_drawings_are_listed_newest_first(drawn, tmp_path) -> None:
    assert all_drawings(tmp_path) == []
    for time, name in enumerate(("b", "a")):
        save_values(drawn.drawing, tmp_path, name)
        os.utime(drawing_path(tmp_path, name, ".json"), (time, time))
    (tmp_path / "drawings" / "broken.json").write_text("{")
    assert len(all_drawings(tmp_path)) == 2
