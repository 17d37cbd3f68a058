"""The pieces of a grid: which there are, their order, their failures."""

import pytest

from cutaway.core.errors import BadSpec
from cutaway.methods.nextword import grid as module
from cutaway.methods.nextword.grid import NextwordGrid
from cutaway.methods.nextword.spec import NextwordSpec
from cutaway.methods.nextword.task import nextword_tasks
from cutaway.store.progress import Progress
from tests.methods.nextword.toys import PROMPT, QUIET, TEXTS, WORDS

OPTIONS = {"model": ["m"], "data": ["d"], "prompt_text": PROMPT, "repeats": 1, **WORDS}


@pytest.fixture
def make_grid(toy):
    def make(**options) -> NextwordGrid:
        spec = NextwordSpec(**OPTIONS | options)
        return NextwordGrid(spec, toy, nextword_tasks(spec, {"d": TEXTS})[0], QUIET)

    return make


KINDS = {
    "auto": ("f", "phi_p", "subset", "classwords", "projection", "zeroshot"),
    "all": ("f", "phi_p", "subset", "classwords", "projection", "p", "zeroshot"),
    "auto,p": ("f", "phi_p", "subset", "classwords", "projection", "p", "zeroshot"),
    "p,f,p": ("p", "f"),
}


@pytest.mark.parametrize("features", KINDS)
def test_feature_kinds_follow_the_option_and_the_words(features: str, make_grid) -> None:
    assert make_grid(features=features).kinds == KINDS[features]


def test_pieces_are_baselines_then_features_and_diagnoses_of_each_prompt(make_grid) -> None:
    grid = make_grid(features="f,phi_p", baselines="bow")
    assert [piece.key for piece in grid.pieces()] == [
        "bow|", "f|", "phi_p|", "diagnose|",
        f"f|{PROMPT}", f"phi_p|{PROMPT}", f"diagnose|{PROMPT}",
    ]  # fmt: skip
    assert "diagnose|" not in {p.key for p in make_grid(diagnostics=False).pieces()}


def test_words_are_reported_with_tokens_and_missing_ones(make_grid) -> None:
    report = make_grid(features="subset,f").word_report()
    assert set(report) == {"subset"}
    assert report["subset"]["missing"] == ["zzzz"]
    assert set(report["subset"]["tokens"]) == {"hate", "love", "film"}


def test_finished_pieces_are_not_measured_again(make_grid, tmp_path, monkeypatch) -> None:
    grid, progress = make_grid(features="f", prompt=True, baselines="majority"), Progress(tmp_path)
    keys = grid.measure_all(progress)
    rows = progress.rows(keys)
    assert {row["features"] for row in rows} == {"majority", "f", "phi_p", "logz"}
    details = progress.details(keys)
    assert {d["figure"] for d in details if "figure" in d} == {"confusion"}
    assert {d["features"] for d in details if "resampling" in d} == {"majority", "f"}
    monkeypatch.setattr(module.NextwordGrid, "measure", None)
    assert make_grid(features="f", prompt=True, baselines="majority").measure_all(progress) == keys


def test_a_piece_that_fails_is_recorded_and_the_others_are_measured(
    make_grid, tmp_path, monkeypatch
) -> None:
    def broken(grid, piece):
        raise ZeroDivisionError("no rows")

    monkeypatch.setitem(module.MEASURES, "zeroshot", broken)
    grid = make_grid(features="zeroshot,f", prompt=True, baselines="none", diagnostics=False)
    progress = Progress(tmp_path)
    rows = progress.rows(grid.measure_all(progress))
    failed = [row for row in rows if row["status"] == "failed"]
    assert [row["features"] for row in failed] == ["zeroshot"]
    assert "ZeroDivisionError" in failed[0]["reason"] and "no rows" in failed[0]["reason"]
    assert {row["features"] for row in rows if row["status"] == "done"} == {"f"}


def test_a_word_list_without_tokens_is_refused_only_if_nothing_else_can_be_measured(
    make_grid,
) -> None:
    make_grid(features="subset,f", subset_words=["zzzz"]).check()
    with pytest.raises(BadSpec, match="none of the words 'zzzz' is a single token"):
        make_grid(features="subset", subset_words=["zzzz"]).check()


def test_a_masked_position_needs_a_template(toy_bert) -> None:
    spec = NextwordSpec(**OPTIONS, position="mask")
    task = nextword_tasks(spec, {"d": TEXTS})[0]
    with pytest.raises(BadSpec, match="no template to put"):
        NextwordGrid(spec, toy_bert, task, QUIET).check()
