"""`shortcut fit`: maps, their file, their r2 on held-out texts, and what is refused."""

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.metrics import r2_score

from cutaway.catalog import VERBS
from cutaway.core.errors import BadSpec
from cutaway.measure.splits import hold_out_split
from cutaway.methods.shortcut import api as shortcut
from cutaway.methods.shortcut.fit import MAX_DRAFT_TOKENS, extra_kinds, frequent_tokens
from cutaway.methods.shortcut.maps import load_maps
from cutaway.methods.shortcut.memory import fit_bytes
from cutaway.methods.shortcut.sample import SampleRequest, take_sample
from cutaway.methods.shortcut.spec import EvalSpec, FitSpec
from cutaway.recipe.life_cycle import Context, estimate
from tests.methods.shortcut.toy import EVERY_KIND, KINDS, OTHER, TEXTS


def test_a_fit_has_every_pair_and_explains_more_than_the_identity(fitted, maps) -> None:
    assert maps.kinds == KINDS
    r2 = fitted.rows.filter(pl.col("metric") == "r2")
    mat, same = (r2.filter(pl.col("kind") == kind) for kind in ("mat", "id"))
    assert len(mat) == len(same) == 6
    joined = mat.join(same, on=["source", "target"], suffix="_id")
    assert (joined["value"] > joined["value_id"]).all()
    assert fitted.summary["verdict"]


@pytest.mark.parametrize("kind", KINDS)
def test_r2_is_scikit_learns_on_the_held_out_states(fitted, maps, toy, kind) -> None:
    spec = FitSpec(model="-", text="-", positions_per_text=3)
    sample = take_sample(SampleRequest(spec, toy, TEXTS, 0), Context())
    [(_, states)] = sample.states(sample.held_out, range(toy.layers + 1))
    cells = fitted.rows.filter((pl.col("kind") == kind) & (pl.col("target") == toy.layers))
    for source, value in zip(cells["source"], cells["value"], strict=True):
        predicted = maps.jump(source, toy.layers, kind)(states[source])
        expected = r2_score(states[toy.layers].numpy(), predicted.numpy())
        assert value == pytest.approx(expected, abs=1e-4)


def test_the_map_is_least_squares_on_the_training_texts(maps, toy) -> None:
    _, train = hold_out_split(len(TEXTS), 0.25, 0)
    assert maps.meta["text"]["fitted_rows"] == len(train) == 180
    spec = FitSpec(model="-", text="-", positions_per_text=3)
    sample = take_sample(SampleRequest(spec, toy, TEXTS, 0), Context())
    [(_, states)] = sample.states(sample.train, [1, 3])
    x, y = states[1].double(), states[3].double()
    exact = torch.linalg.lstsq(x, y).solution
    torch.testing.assert_close(maps.jump(1, 3)(x), x @ exact, rtol=1e-3, atol=1e-3)


def test_a_second_fit_finds_the_first(fitted, options, maps_file, monkeypatch) -> None:
    monkeypatch.setattr(
        "cutaway.methods.shortcut.fit.fit_all_maps", lambda *_: pytest.fail("fitted again")
    )
    again = shortcut.fit(**options, text=TEXTS, out=maps_file, positions_per_text=3, **EVERY_KIND)
    assert again.record.address == fitted.record.address


def test_without_out_the_maps_are_in_the_runs_folder(options, toy, tmp_path) -> None:
    result = shortcut.fit(**options | {"runs": str(tmp_path)}, text=OTHER, layers="to-final")
    maps = shortcut.load(result.path / "shortcut.safetensors", toy)
    assert maps.jump(0, 3).factors
    assert "30 rows for 32 coordinates" in result.summary["notes"][0]
    with pytest.raises(BadSpec, match="without --layers all"):
        maps.jump(0, 1)


def test_masked_models_are_fitted_at_the_mask(folder, tiny_lm) -> None:
    result = shortcut.fit(model=tiny_lm("bert"), text=OTHER, runs=str(folder / "runs"), quiet=True)
    assert result.summary["pairs"] == 6
    with pytest.raises(BadSpec, match=r"drafts: .* is a masked model"):
        shortcut.fit(
            model=tiny_lm("bert"), text=OTHER, runs=str(folder / "runs"), drafts=4, quiet=True
        )


def test_a_dry_run_estimates_the_memory_of_the_fit_and_the_size_of_its_file(
    folder, toy, fitted, maps, maps_file
) -> None:
    place = {"model": str(folder / "toy"), "text": "docs", "limit": 20, "max_tokens": 16}
    spec = FitSpec(**place, **EVERY_KIND)
    [fit] = estimate(VERBS["shortcut fit"], spec)
    assert fit.memory_mb >= fit_bytes(toy, spec) / 2**20 - 0.1
    # The file has token ids, biases and descriptions in addition to the matrices.
    size = maps.size / 2**20
    assert fit.disk_mb >= 0.8 * size
    [evaluation] = estimate(VERBS["shortcut eval"], EvalSpec(**place, shortcut=maps_file))
    assert evaluation.memory_mb > size


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        ("rank must be between 1 and the width 32, got 33", {"rank": 33}),
        ("ridge must be 'auto' or a number of at least 0", {"ridge": -1}),
        ("ends in .safetensors, got 'maps.pt'", {"out": "maps.pt"}),
    ],
)
def test_impossible_options_are_refused_before_any_work(
    options, message, wrong, monkeypatch
) -> None:
    monkeypatch.setattr("cutaway.methods.shortcut.fit.take_sample", None)
    with pytest.raises(BadSpec, match=message):
        shortcut.fit(**options, text=TEXTS, **wrong)


def test_extra_kinds_are_those_whose_flag_is_given() -> None:
    assert extra_kinds(FitSpec(model="-")) == {}
    every = extra_kinds(FitSpec(model="-", intercept=True, ridge="auto", rank=3))
    assert every == {
        "affine": {"intercept": True}, "ridge": {"ridge": "auto"}, "lowrank": {"rank": 3},
    }  # fmt: skip
    assert extra_kinds(FitSpec(model="-", ridge=0.0)) == {"ridge": {"ridge": 0.0}}


def test_frequent_tokens_are_sorted_ids_of_the_most_frequent(other_sample, monkeypatch) -> None:
    counts = np.bincount(np.concatenate(other_sample.full.rows), minlength=other_sample.lm.vocab)
    everything = frequent_tokens(other_sample)
    assert everything.tolist() == list(range(min(MAX_DRAFT_TOKENS, other_sample.lm.vocab)))
    monkeypatch.setattr("cutaway.methods.shortcut.fit.MAX_DRAFT_TOKENS", 5)
    few = frequent_tokens(other_sample).tolist()
    assert few == sorted(few)
    assert sorted(counts[few]) == sorted(np.sort(counts)[-5:])


def test_draft_maps_are_in_the_file_but_are_no_kind_to_evaluate(options, folder, toy) -> None:
    file = str(folder / "ahead.safetensors")
    shortcut.fit(**options, text=TEXTS, out=file, drafts=40)
    assert load_maps(file, toy).kinds == ("id", "mat")
    assert load_maps(file, toy).pairs("ahead")
