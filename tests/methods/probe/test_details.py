import math

import pytest
from pydantic import ValidationError

from cutaway.core.errors import Corrupt
from cutaway.methods.probe import details
from tests.report.fake_runs import probe_details

CELL = {"model": "m", "data": "d", "layers": "1", "pool": "last", "classifier": "lda"}


def test_entries_come_back_as_they_went_in() -> None:
    entries = probe_details(points=20)
    assert details.parse_details(details.dump_details(entries)) == entries
    assert {e.figure for e in entries} == {"confusion", "roc", "scores", "projection", "losses"}


def test_class_names_that_look_like_numbers_stay_names() -> None:
    point = {"x": (0.0,), "y": (0.0,)}
    for labels in (("1",), (1.0,)):
        entry = details.Projection(**CELL, **point, labels=labels)
        assert details.parse_details(details.dump_details([entry]))[0].labels == labels


def test_an_infinite_threshold_is_no_threshold() -> None:
    entry = details.ScoreHistogram(**CELL, edges=(0, 1), counts={"a": (1,)}, threshold=-math.inf)
    assert entry.threshold is None


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (details.ConfusionMatrix, {"classes": ("a", "b"), "counts": ((1, 2),)}),
        (details.RocCurve, {"label": "a", "false_positive": (0,), "true_positive": (0, 1)}),
        (details.ScoreHistogram, {"edges": (0, 1), "counts": {"a": (1, 2)}}),
        (details.Projection, {"x": (0,), "y": (0,), "labels": ("a", "b")}),
        (details.LossCurves, {"train": (math.nan,)}),
    ],
)
def test_columns_that_do_not_fit_together_are_refused(kind, wrong) -> None:
    with pytest.raises(ValidationError):
        kind(**CELL, **wrong)


@pytest.mark.parametrize("text", [b"", b"{", b"[{}]", b'[{"figure": "pie"}]', b"\xff\xfe"])
def test_a_damaged_file_is_named_and_nothing_else_raised(tmp_path, text: bytes) -> None:
    (tmp_path / details.DETAILS_FILE).write_bytes(text)
    with pytest.raises(Corrupt, match=details.DETAILS_FILE):
        details.read_details(tmp_path)


def test_a_run_without_the_file_has_no_entries(tmp_path) -> None:
    assert details.read_details(tmp_path) == []
