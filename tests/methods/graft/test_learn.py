"""`graft learn` on toy models, causal and masked: rows, restarts, refusals."""

import numpy as np
import polars as pl
import pytest

from cutaway.core.errors import BadData, BadSpec
from cutaway.methods.graft import learn as recipe
from cutaway.methods.graft.skill import load_skill
from cutaway.methods.graft.spec import BASELINES
from tests.methods.graft.toy import value


def test_a_run_has_every_kind_of_mask_at_its_exact_size(learned) -> None:
    family, result, out = learned
    kinds = set(result.rows["kind"].to_list())
    expected = {"base", "tuned", "learned", "removed", *BASELINES}
    assert kinds == (expected - {"biases"} if family == "llama" else expected)
    sizes = result.summary["sizes"]
    for share, size in zip(result.summary["sparsity"], sizes, strict=True):
        for kind in kinds - {"base", "tuned", "removed", "biases"}:
            assert set(value(result.rows, kind, "size", sparsity=share)) == {size}
    assert load_skill(out).size == sizes[0]


def test_columns_and_coordinates_are_those_of_the_contract(learned) -> None:
    _, result, _ = learned
    first = ["base", "tuned", "task", "kind", "sparsity", "seed"]
    assert result.rows.columns[:6] == first
    assert result.rows.columns[-4:] == ["metric", "value", "low", "high"]
    seeds = result.rows.filter((pl.col("kind") == "learned") & (pl.col("metric") == "accuracy"))
    assert sorted(seeds["seed"].unique().to_list()) == [0, 1]


def test_base_and_tuned_gain_nothing_and_everything(learned) -> None:
    _, result, _ = learned
    assert value(result.rows, "base", "relative_gain") == [0.0]
    assert value(result.rows, "tuned", "relative_gain") == [1.0]
    assert value(result.rows, "tuned", "agreement") == [1.0]


def test_more_weights_keep_more_and_random_ones_keep_less(learned) -> None:
    _, result, _ = learned
    few, many = result.summary["sparsity"]
    large = np.mean(value(result.rows, "learned", "relative_gain", sparsity=many))
    assert large > 0.8
    assert large >= np.mean(value(result.rows, "random", "relative_gain", sparsity=many))
    judged = [value(result.rows, "learned", "judge", sparsity=s) for s in (few, many)]
    assert np.mean(judged[1]) >= np.mean(judged[0]) - 0.02


def test_a_mask_is_never_judged_worse_than_its_start(learned) -> None:
    _, result, _ = learned
    for seed in (0, 1):
        curve = result.rows.filter((pl.col("metric") == "mask_score") & (pl.col("seed") == seed))
        for (_,), steps in curve.group_by(["sparsity"]):
            start = steps.filter(pl.col("step") == 0)["value"][0]
            assert steps["value"].max() >= start


def test_a_second_run_is_found_and_a_killed_one_goes_on(toy, monkeypatch) -> None:
    options = {"sparsity": 0.05, "seeds": (3, 4), "baselines": ("random",), "text": "none"}
    calls = []
    real = recipe.MaskSearch.learn

    def once(self, size, seed, start=None, **named):
        if calls:
            raise KeyboardInterrupt
        calls.append(seed)
        return real(self, size, seed, start, **named)

    monkeypatch.setattr(recipe.MaskSearch, "learn", once)
    with pytest.raises(KeyboardInterrupt):
        toy.learn(**options)
    calls.clear()
    result = toy.learn(**options)
    assert calls == [4]
    calls.append(0)
    assert toy.learn(**options).record.address == result.record.address
    monkeypatch.undo()
    whole = toy.learn(**options, runs=str(toy.folder / "elsewhere"))
    assert whole.rows.equals(result.rows)


BAD = [
    ({"sparsity": 1e-9}, BadSpec, "rounds to no weight"),
    ({"sparsity": 2.0}, BadSpec, "sparsity must be in"),
    ({"params": "*nothing*"}, BadSpec, "No changed weight matches"),
    ({"shots": 4000}, BadData, "Ask for fewer shots"),
    ({"words": "unheard,cat"}, BadSpec, "unheard"),
    ({"baselines": "randon"}, BadSpec, "Unknown baseline"),
    ({"out": "skill.bin"}, BadSpec, "safetensors"),
    ({"start": "nowhere"}, Exception, "starting mask"),
]


@pytest.mark.parametrize(("wrong", "error", "said"), BAD, ids=lambda v: str(v)[:24])
def test_a_wrong_request_is_refused_with_the_reason(toy, wrong, error, said) -> None:
    with pytest.raises(error, match=said):
        toy.learn(**wrong)


def test_predictions_give_the_reported_accuracy_of_every_mask(toy) -> None:
    options = {"steps": 1, "baselines": "random,movement", "text": "none", "sparsity": (0.02, 0.2)}
    result = toy.learn(**options, samples=True)
    right = pl.col("truth") == pl.col("answer")
    found = result.samples.group_by("kind", "sparsity").agg(right.mean().alias("found"))
    reported = result.rows.filter((pl.col("metric") == "accuracy") & pl.col("layer").is_null())
    both = reported.join(found, on=["kind", "sparsity"])
    assert len(both) == len(found) == 3 + 3 * 2
    assert both["value"].to_list() == both["found"].to_list()
    splits = pl.read_parquet(result.path / "splits.parquet")
    tested = splits.filter(part="test")["row"].to_list()
    assert tested == result.samples.filter(kind="tuned")["row"].to_list()
    assert not set(tested) & set(splits.filter(pl.col("part") != "test")["row"])
    assert toy.learn(**options).path == result.path
