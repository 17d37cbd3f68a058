"""The recipes of shortcut on a toy model: files, numbers, refusals, from Python as a user would."""

import json

import numpy as np
import polars as pl
import pytest
import torch

from cutaway.catalog import VERBS
from cutaway.core.errors import BadData, BadSpec
from cutaway.core.textset import TextSet
from cutaway.extract.request import ExtractionRequest, build_token_rows
from cutaway.measure.splits import hold_out_split
from cutaway.methods.shortcut import api as shortcut
from cutaway.methods.shortcut.block_parts import PART_GROUPS
from cutaway.methods.shortcut.exit import calibrations
from cutaway.methods.shortcut.generate import decode_continuation
from cutaway.methods.shortcut.maps import load_maps
from cutaway.methods.shortcut.maths.exit import LayerConfidences
from cutaway.methods.shortcut.maths.schedule import best_schedules
from cutaway.methods.shortcut.memory import fit_bytes
from cutaway.methods.shortcut.schedules import run_schedule
from cutaway.methods.shortcut.spec import EvalSpec, ExitSpec, FitSpec
from cutaway.models.load import open_model
from cutaway.models.read import collect_states
from cutaway.recipe.life_cycle import estimate
from tests.tiny import toy_language, toy_model

TEXTS = TextSet("toy", tuple(toy_language(240)))
OTHER = TextSet(
    "other", tuple(t for t in toy_language(200, seed=9) if t not in set(TEXTS.texts))[:40]
)
EVERYTHING = {"intercept": True, "ridge": "auto", "rank": 8, "tuned": 30, "parts": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shortcut")


@pytest.fixture(scope="module")
def toy(folder):
    return open_model(str(toy_model(folder / "toy")))


@pytest.fixture(scope="module")
def fitted(folder, toy):
    """Every kind of map of the toy model, and the run that made them."""
    result = shortcut.fit(
        model=toy, text=TEXTS, out=str(folder / "maps.safetensors"), runs=str(folder / "runs"),
        positions_per_text=3, quiet=True, **EVERYTHING,
    )  # fmt: skip
    return result, load_maps(folder / "maps.safetensors", toy)


@pytest.fixture(scope="module")
def measured(folder, toy, fitted):
    return shortcut.eval(
        model=toy, text=TEXTS, positions_per_text=3, schedules=True, quiet=True,
        shortcut=str(folder / "maps.safetensors"), runs=str(folder / "runs"),
    )  # fmt: skip


def values(rows: pl.DataFrame, metric: str, kind: str) -> list[float]:
    chosen = rows.filter((pl.col("metric") == metric) & (pl.col("kind") == kind))
    return chosen.sort("layer")["value"].to_list()


def test_a_fit_has_every_pair_and_explains_more_than_the_identity(fitted) -> None:
    result, maps = fitted
    assert maps.kinds == ("id", "mat", "affine", "ridge", "lowrank", "tuned")
    r2 = result.rows.filter(pl.col("metric") == "r2")
    mat, same = (r2.filter(pl.col("kind") == kind) for kind in ("mat", "id"))
    assert len(mat) == len(same) == 6
    joined = mat.join(same, on=["source", "target"], suffix="_id")
    assert (joined["value"] > joined["value_id"]).all()
    assert result.summary["verdict"]


def test_the_fit_of_python_is_least_squares_on_the_training_texts(fitted, toy) -> None:
    _, maps = fitted
    _, train = hold_out_split(len(TEXTS), 0.25, 0)
    assert maps.meta["text"]["fitted_rows"] == len(train) == 180
    assert maps.jump(1, 3).matrix.shape == (32, 32)
    assert maps.jump(2, 2)(torch.ones(4)).tolist() == [1.0] * 4


def test_at_the_last_layer_every_kind_agrees_with_the_model(measured) -> None:
    for kind in ("id", "mat", "affine", "ridge", "lowrank", "tuned"):
        for metric in ("precision@1", "precision@5", "precision@10"):
            assert values(measured.rows, metric, kind)[-1] == 1.0
        assert values(measured.rows, "kl", kind)[-1] < 1e-5


def test_precision_grows_with_k_and_the_trained_map_is_nearest(measured) -> None:
    for kind in ("id", "mat"):
        one, five = (values(measured.rows, f"precision@{k}", kind) for k in (1, 5))
        assert all(a <= b for a, b in zip(one, five, strict=True))
    kl = {kind: sum(values(measured.rows, "kl", kind)) for kind in ("id", "mat", "tuned")}
    assert kl["tuned"] <= kl["mat"] < kl["id"]


def test_intervals_hold_their_value(measured) -> None:
    rows = measured.rows.drop_nulls(["low", "high"])
    assert len(rows) > 50
    assert (rows["low"] <= rows["value"] + 1e-9).all()
    assert (rows["value"] <= rows["high"] + 1e-9).all()


def test_replaced_parts_are_measured_from_several_layers(measured) -> None:
    kinds = set(measured.rows["kind"].to_list())
    assert {f"part:{group}" for group in PART_GROUPS} <= kinds
    assert len(values(measured.rows, "precision@1", "part:mlp")) == 3


def test_schedules_are_measured_with_the_blocks_they_run(measured, toy, fitted) -> None:
    rows = measured.rows.filter(pl.col("kind").str.starts_with("schedule"))
    blocks = rows.filter(pl.col("metric") == "precision@1")
    found = dict(zip(blocks["kind"], blocks["layer"], strict=True))
    assert found == {"schedule:1": 1, "schedule:2": 2}
    kinds = set(measured.rows["kind"].to_list())
    assert "alternate:1+1" in kinds


def test_a_way_through_every_block_is_the_model_itself(toy, fitted) -> None:
    lm, (_, maps) = toy, fitted
    fed = build_token_rows(lm, OTHER, ExtractionRequest(layers=(0,), input_mode="cut"))
    whole = best_schedules({}, lm.layers)[0]
    found = run_schedule(lm, fed, [3, 1], maps, whole)
    for place, row in enumerate([3, 1]):
        ids = torch.tensor([fed.rows[row]])
        plain = collect_states(lm, ids, torch.ones_like(ids, dtype=torch.bool)).layers[lm.layers]
        torch.testing.assert_close(found[place], plain[0, fed.marks[row][0]], rtol=1e-4, atol=1e-5)


def test_other_text_is_measured_whole_the_fits_own_text_only_where_held_out(
    measured, folder, toy
) -> None:
    other = shortcut.eval(
        model=toy, text=OTHER, kinds="id,mat", quiet=True, parts=False,
        shortcut=str(folder / "maps.safetensors"), runs=str(folder / "runs"),
    )  # fmt: skip
    held, train = hold_out_split(len(TEXTS), 0.25, 0)
    known = {TEXTS.texts[i] for i in train}
    assert measured.summary["texts"] == sum(TEXTS.texts[i] not in known for i in held)
    assert other.summary["texts"] == len(OTHER) == 40
    assert set(other.rows["kind"].to_list()) == {"id", "mat"}
    assert set(other.rows["fitted_on"].to_list()) == {"toy"}
    assert set(other.rows["text"].to_list()) == {"other"}


def test_no_text_that_was_fitted_on_is_measured_on_however_it_comes(folder, toy, fitted) -> None:
    asked = {"model": toy, "kinds": "mat", "quiet": True, "runs": str(folder / "runs")}
    asked |= {"shortcut": str(folder / "maps.safetensors"), "parts": False}
    _, train = hold_out_split(len(TEXTS), 0.25, 0)
    known = {TEXTS.texts[i] for i in train}
    some = TextSet("some", (*TEXTS.texts[:50], *OTHER.texts[:5]))
    expected = sum(text not in known for text in some.texts)
    assert shortcut.eval(text=some, **asked).summary["texts"] == expected
    seen = TextSet("seen", tuple(sorted(known)))
    with pytest.raises(BadData, match="fitted on every text"):
        shortcut.eval(text=seen, **asked)


def test_perplexity_is_that_of_the_token_that_really_comes(folder, toy, fitted) -> None:
    asked = {"text": OTHER, "shortcut": str(folder / "maps.safetensors"), "quiet": True}
    result = shortcut.eval(model=toy, runs=str(folder / "runs"), **asked)
    rows = build_token_rows(toy, OTHER, ExtractionRequest(layers=(0,), pools=("last",))).rows
    marks = build_token_rows(
        toy, OTHER, ExtractionRequest(layers=(0,), pools=("marks",), input_mode="cut", positions=1)
    ).marks
    losses = []
    with torch.inference_mode():
        for row, [place] in zip(rows, marks, strict=True):
            if place + 1 < len(row):
                logits = toy.module(torch.tensor([row[: place + 1]])).logits[0, -1].double()
                losses.append(-logits.log_softmax(-1)[row[place + 1]])
    found = values(result.rows, "perplexity", "mat")[toy.layers]
    assert found == pytest.approx(float(torch.stack(losses).mean().exp()), rel=1e-4)


def test_a_second_fit_finds_the_first(fitted, folder, toy, monkeypatch) -> None:
    monkeypatch.setattr(
        "cutaway.methods.shortcut.fit.fit_all_maps", lambda *_: pytest.fail("fitted again")
    )
    again = shortcut.fit(
        model=toy, text=TEXTS, out=str(folder / "maps.safetensors"), runs=str(folder / "runs"),
        positions_per_text=3, quiet=True, **EVERYTHING,
    )  # fmt: skip
    assert again.record.address == fitted[0].record.address


def test_without_a_file_name_the_maps_lie_in_the_run(folder, toy) -> None:
    result = shortcut.fit(
        model=toy, text=OTHER, layers="to-final", runs=str(folder / "runs"), quiet=True
    )
    maps = shortcut.load(result.path / "shortcut.safetensors", toy)
    assert maps.jump(0, 3).factors
    assert "30 rows for 32 coordinates" in result.summary["notes"][0]
    with pytest.raises(BadSpec, match="to-final"):
        maps.jump(0, 1)


def test_exit_curves_end_where_the_paper_says(folder, toy, fitted) -> None:
    result = shortcut.exit(
        model=toy, text=TEXTS, agreement=0.8, quiet=True,
        shortcut=str(folder / "maps.safetensors"), runs=str(folder / "runs"),
    )  # fmt: skip
    layers = result.rows.filter(pl.col("metric") == "layers")
    assert set(layers.filter(pl.col("lambda") == 1.112)["value"]) == {3.0}
    assert set(layers.filter(pl.col("lambda") == -1.112)["value"]) == {1.0}
    right = result.rows.filter((pl.col("metric") == "precision@1") & (pl.col("lambda") == 1.112))
    assert set(right["value"]) == {1.0}
    assert result.summary["calibrated"][0]["agreement"] >= 0.8
    clock = result.summary["wall_clock"]
    assert clock["plain_ms"] == pytest.approx(3 * clock["block_ms"] + clock["look_ms"])
    assert 0 < clock["run_layers"] <= 3
    assert min(clock["run_plain_ms"], clock["run_exit_ms"]) > 0
    fixed = result.rows.filter(pl.col("confidence") == "fixed")
    assert fixed.filter(pl.col("layer") == 3)["value"].to_list() == [1.0, 1.0]


def test_what_is_saved_at_best_is_no_less_than_what_a_calibration_promises(
    folder, toy, fitted
) -> None:
    summary = shortcut.exit(
        model=toy, text=TEXTS, agreement=0.95, quiet=True,
        shortcut=str(folder / "maps.safetensors"), runs=str(folder / "runs"),
    ).summary  # fmt: skip
    for one in summary["calibrated"]:
        assert summary["saved_at_95"][f"{one['kind']}/{one['confidence']}"] >= one["saved"]


@pytest.mark.parametrize("options", [{}, {"exit_layers": [2], "draft": 2}, {"sample": True}])
def test_speculative_text_is_the_models_own(folder, toy, fitted, options) -> None:
    out = shortcut.generate(
        model=toy, shortcut=str(folder / "maps.safetensors"), prompt=[" the film", " the king"],
        max_new_tokens=8, quiet=True, **options,
    )  # fmt: skip
    assert json.loads(json.dumps(out.plain()))[0]["prompt"] == " the film"
    assert all(len(text.tokens) <= 8 for text in out.texts)
    if "sample" not in options:
        assert all(text.identical for text in out.texts)
    if "draft" in options:
        assert out.setting is not None
        assert out.setting.layer == 2


def test_an_exit_tells_its_layers(folder, toy, fitted) -> None:
    out = shortcut.generate(
        model=toy, shortcut=str(folder / "maps.safetensors"), prompt=" the film", mode="exit",
        exit_layers="1,2", max_new_tokens=6, quiet=True, lambda_value=-1.112,
    )  # fmt: skip
    assert out.texts[0].layers_mean == pytest.approx((3 + 5 * 1) / 6)


def test_the_lens_shows_the_models_own_words_at_the_last_layer(folder, toy, fitted) -> None:
    page = folder / "lens.html"
    lens = shortcut.lens(
        " the film is good", model=toy, shortcut=str(folder / "maps.safetensors"), html=str(page)
    )
    assert lens.layers == (0, 1, 2, 3)
    assert all(lens.agree["mat"][-1])
    assert len(lens.words["id"][0][0]) == 10
    assert "<html" in page.read_text()
    assert shortcut.lens(" the film is good", model=toy).kinds == ("id",)


def test_new_tokens_read_as_they_stand_behind_the_prompt(toy) -> None:
    row = toy.tokenizer(" the film is good")["input_ids"]
    whole = toy.tokenizer.decode(row)
    for cut in range(1, len(row)):
        first = toy.tokenizer.decode(row[:cut])
        assert first + decode_continuation(toy, row[:cut], row[cut:]) == whole


def test_whichever_calibrated_threshold_is_taken_its_promise_holds() -> None:
    # Twenty kinds of exit that all just miss the wish: taking the best of them is a trap.
    spec = ExitSpec(model="-", shortcut="-", agreement=0.9, risk=0.1)
    rng, broken = np.random.default_rng(0), 0
    for _ in range(100):
        tracks = {}
        for kind in range(20):
            right = np.stack([rng.random(300) < 0.89, np.ones(300, bool)])
            sure = np.stack([np.full(300, 0.9), np.ones(300)])
            tracks[str(kind), "gap"] = LayerConfidences(sure, right, np.zeros(300, np.int64), 10.0)
        # A loosened threshold lets all tokens leave at layer 1, where the truth is 89 %.
        broken += calibrations(tracks, spec)[0][2].layers < 2
    # At most a tenth may break; a hundred trials see 19 or more with a chance below 1 %.
    assert broken < 19


def test_masked_models_are_fitted_at_the_mask(folder, tiny_lm) -> None:
    lm = tiny_lm("bert")
    result = shortcut.fit(model=lm, text=OTHER, runs=str(folder / "runs"), quiet=True)
    assert result.summary["pairs"] == 6
    with pytest.raises(BadSpec, match="only causal models"):
        shortcut.generate(
            model=lm, shortcut=str(result.path / "shortcut.safetensors"), prompt="the", quiet=True
        )


def test_a_dry_run_tells_the_memory_of_the_fit_and_the_size_of_its_file(
    folder, toy, fitted
) -> None:
    place = {"model": str(folder / "toy"), "text": "docs", "limit": 20, "max_tokens": 16}
    spec = FitSpec(**place, **EVERYTHING)
    [fit] = estimate(VERBS["shortcut fit"], spec)
    assert fit.memory_mb >= fit_bytes(toy, spec) / 2**20 - 0.1
    # The file has words, biases and descriptions besides the matrices.
    matrices = fitted[1].size / 2**20
    assert fit.disk_mb >= 0.8 * matrices
    file = str(folder / "maps.safetensors")
    [evaluation] = estimate(VERBS["shortcut eval"], EvalSpec(**place, shortcut=file))
    assert evaluation.memory_mb > matrices


def test_drafts_learn_from_what_the_model_writes(folder, toy, fitted) -> None:
    file = str(folder / "ahead.safetensors")
    shortcut.fit(model=toy, text=TEXTS, out=file, drafts=40, runs=str(folder / "runs"), quiet=True)
    assert load_maps(file, toy).kinds == ("id", "mat")
    prompts = ["the film is", "the food was", "so i"]
    found = shortcut.generate(
        model=toy, shortcut=file, prompt=prompts, max_new_tokens=12, kind="ahead", exit_layers=0,
        draft=3, quiet=True,
    )  # fmt: skip
    assert found.setting.kind == "ahead"
    assert all(text.identical for text in found.texts)
    assert sum(text.accepted for text in found.texts) > 0.5
    with pytest.raises(BadSpec, match="no maps of kind ahead"):
        shortcut.generate(
            model=toy, shortcut=str(folder / "maps.safetensors"), prompt="so i", kind="ahead",
            max_new_tokens=4, quiet=True,
        )  # fmt: skip
