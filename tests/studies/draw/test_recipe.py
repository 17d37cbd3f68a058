"""`cutaway draw`: runs what is missing, reuses what is there, refuses what can't be drawn."""

import json
from pathlib import Path

import polars as pl
import pytest

import cutaway
from cutaway.cli.main import run
from cutaway.core.errors import BadData, BadSpec, CutawayError, Mismatch, Missing
from cutaway.store.results import results
from cutaway.studies.draw.spec import TRACKS

MOOD = "mood"


def test_every_track_has_one_value_per_layer(drawn, toy) -> None:
    plain = drawn.plain()
    assert plain["layers"] == toy.layers
    assert len(plain["words"]) == toy.layers + 1
    assert {len(values) for values in plain["tracks"].values()} == {toy.layers + 1}
    assert {MOOD, "agreement", "linearity", "fisher"} <= set(plain["tracks"])
    assert set(plain["missing"]) == {"skill"}
    assert plain["verdict"]


def test_a_second_drawing_makes_no_runs(drawn, place, folder, data, capsys) -> None:
    before = [(one.method, one.address) for one in results(place / "runs")]
    again = cutaway.draw(folder, data=data, runs=str(place / "runs"), quick=True)
    assert [(one.method, one.address) for one in results(place / "runs")] == before
    assert again.plain()["tracks"] == drawn.plain()["tracks"]
    assert "already done" not in capsys.readouterr().err


def test_runs_made_by_other_commands_are_reused(place, folder, data) -> None:
    runs = str(place / "own")
    own = cutaway.probe(
        model=folder, data=data, runs=runs, repeats=3, pool=["last", "mean"],
        baselines="majority", quiet=True,
    )  # fmt: skip
    drawn = cutaway.draw(folder, data=data, tracks="property", runs=runs, quiet=True)
    assert drawn.plain()["runs"] == {MOOD: own.record.address}
    headline = own.summary["headline"]
    shown = drawn.plain()["tracks"][MOOD][int(headline["layers"])]
    assert shown == pytest.approx(headline["value"])


def test_runs_of_another_model_are_not_used(place, folder, masked_folder, data, drawn) -> None:
    other = cutaway.draw(
        masked_folder,
        data=data,
        tracks="property",
        runs=str(place / "runs"),
        quick=True,
        quiet=True,
    )
    assert not set(other.plain()["runs"].values()) & set(drawn.plain()["runs"].values())


def test_the_values_are_those_of_the_runs(drawn, place, toy) -> None:
    plain, last = drawn.plain(), toy.layers
    record = results(place / "runs").get(plain["runs"]["agreement"])
    rows = record.rows.filter((pl.col("metric") == "precision@1") & (pl.col("kind") == "mat"))
    by_layer = dict(rows.select("layer", "value").iter_rows())
    assert plain["tracks"]["agreement"] == [by_layer[n] for n in range(last + 1)]
    assert plain["tracks"]["agreement"][last] == 1.0
    fit = results(place / "runs").get(plain["runs"]["linearity"])
    assert plain["tracks"]["linearity"][:last] == fit.summary["r2_to_final"]
    # The step to the last layer is the same map in both series.
    assert plain["tracks"]["linearity"][last - 1] == plain["tracks"]["linearity/next"][last - 1]


def test_the_fisher_run_keeps_no_file(drawn, place) -> None:
    record = results(place / "runs").get(drawn.plain()["runs"]["fisher"])
    assert set(record.files) == {"rows.parquet", "splits.parquet"}
    shares = [value for value in drawn.plain()["tracks"]["fisher"] if value is not None]
    assert 0 < sum(shares) <= 1 + 1e-9


def test_the_picture_is_written(drawn, place) -> None:
    assert drawn.path == str(place / "toy.svg")
    assert "<svg" in Path(drawn.path).read_text()


def test_without_out_the_page_is_in_the_results_folder(place, folder, data) -> None:
    drawn = cutaway.draw(folder, data=data, tracks="skill", runs=str(place / "runs"), quiet=True)
    assert drawn.path == str(place / "runs" / "drawings" / "toy.html")
    assert Path(drawn.path).is_file()
    # Pages are not runs.
    assert results(place / "runs").broken == []


def test_a_masked_model_has_a_word_at_its_mask(masked_folder, place, data) -> None:
    drawn = cutaway.draw(
        masked_folder, data=data, runs=str(place / "masked-runs"), quick=True, quiet=True
    )
    assert all(drawn.plain()["words"])
    assert drawn.plain()["sentence"].count("[MASK]") == 1


def test_the_command_line_prints_json_alone(folder, place, data, capsys) -> None:
    words = ["draw", folder, "--data", data, "--runs", str(place / "runs"), "--quick", "--json"]
    assert run(words) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {"model", "layers", "sentence", "words", "tracks", "verdict"} <= set(printed)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"tracks": "propety"}, BadSpec, "Did you mean 'property'"),
        ({"out": "picture.gif"}, BadSpec, ".svg"),
        ({"sentence": "  "}, BadData, "empty"),
        ({"data": "nowhere.tsv"}, CutawayError, "nowhere.tsv"),
        ({"skill": "nowhere.safetensors"}, Missing, "nowhere"),
    ],
)
def test_a_wrong_request_is_one_message(folder, place, options, error, says) -> None:
    with pytest.raises(error, match=says):
        cutaway.draw(folder, **{"runs": str(place / "runs"), "quiet": True} | options)


def test_a_checkpoint_of_another_shape_is_refused(folder, masked_folder, place) -> None:
    with pytest.raises(Mismatch):
        cutaway.draw(folder, tuned=masked_folder, tracks="movement", runs=str(place), quiet=True)


def test_the_model_itself_as_tuned_checkpoint_has_not_moved(folder, place) -> None:
    drawn = cutaway.draw(folder, tuned=folder, tracks="movement", runs=str(place), quiet=True)
    moved = [value for value in drawn.plain()["tracks"]["movement"] if value is not None]
    assert set(moved) == {0.0}
    assert "No weight has moved." in drawn.plain()["verdict"][0]


def test_the_tracks_are_those_of_the_columns() -> None:
    from cutaway.report.drawing.values import SERIES

    assert set(TRACKS) == set(SERIES)
