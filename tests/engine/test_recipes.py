"""The same command on every engine gives the same table."""

import numpy as np
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

import cutaway
from cutaway.extract.model_handle import ModelHandle, make_model_handle
from cutaway.methods.probe.spec import ProbeSpec
from cutaway.methods.shortcut import cross_products as products
from cutaway.methods.shortcut.maths.moments import layer_pairs, moments_from_state_dict
from cutaway.models.load import open_model
from cutaway.store.activations import open_activations
from tests.engine.work import Stubborn
from tests.methods.probe.test_recipe import labelled
from tests.tiny import tiny, toy_model


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(tiny("gpt2", tmp_path_factory.mktemp("engine") / "gpt2"))


@pytest.fixture(scope="module")
def lm(model):
    return open_model(model, check=False)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty store, and another one when asked again."""

    def fresh(name: str):
        monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / name))
        return tmp_path / name

    return fresh


def door(lm, model) -> ModelHandle:
    found = make_model_handle(lm, ProbeSpec(model=model, data="sst2"))
    assert found is not None
    return found


def grid(model, folder, engine, **options):
    settings = {
        "model": model, "data": labelled(40), "layers": "0,2", "pool": ["last", "mean"],
        "classifier": ["ridge", "lda"], "repeats": 2, "runs": str(folder), "quiet": True,
        "baselines": ["majority", "twin"],
    }  # fmt: skip
    return cutaway.probe(**{**settings, "engine": engine, **options}).rows


def test_a_grid_is_the_same_table_row_for_row_wherever_it_runs(model, home, tmp_path, elsewhere):
    home("one")
    there = grid(model, tmp_path / "there", elsewhere)
    # From the same states to the last bit, whoever computed them.
    assert there.equals(grid(model, tmp_path / "here", "local"))
    assert set(there["status"]) == {"done"}
    home("two")
    anew = grid(model, tmp_path / "anew", "local")
    # Other batches give other last bits of the states.
    assert_frame_equal(there, anew, rel_tol=1e-4, abs_tol=1e-4)


def test_a_cell_that_fails_is_recorded_with_the_same_reason_everywhere(model, home, tmp_path):
    home("one")
    choice = {"classifier": [Stubborn(), "ridge"], "pool": "last", "baselines": ["majority"]}
    here, there = (
        grid(model, tmp_path / engine, engine, **choice) for engine in ("local", "local:2")
    )
    assert here.equals(there)
    failed = there.filter(pl.col("status") == "failed")
    assert failed.height == 2
    assert set(failed["reason"]) == {"ArithmeticError: it does not want to"}


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize("precise", [True, False])
def test_partial_sums_add_up_to_the_single_pass(home, workers, precise):
    """To 1e-10 relative, also where chunks are multiplied in float32: they are the same chunks."""
    home("one")
    rng = np.random.default_rng(0)
    marks = rng.integers(1, 4, size=60)
    shelf = open_activations({"for": "sums"}, 60)
    states = {i: torch.randn(int(marks.sum()), 6) * 10**i + 100 for i in range(3)}
    with shelf.writer() as writer:
        writer.append_ragged(range(60), marks, {f"{i}/marks": s for i, s in states.items()})
    texts = np.sort(rng.choice(60, size=45, replace=False))
    adder = products.PartialMoments(shelf, layer_pairs(2), 2, precise, chunk=16)
    stretches = list(products.example_ranges(texts, marks[texts], workers, adder.chunk))
    assert len(stretches) <= workers
    parts = [
        moments_from_state_dict({k: torch.as_tensor(v) for k, v in adder(s).items()})
        for s in stretches
    ]
    total = sum(parts[1:], parts[0])
    single = adder.accumulator()
    for _, rows in products.stored_states(shelf, texts, range(3), at_once=7):
        single.add(rows)
    one = single.moments()
    assert total.rows == one.rows == marks[texts].sum()
    for name, value in one.state_dict().items():
        torch.testing.assert_close(total.state_dict()[name], value, rtol=1e-10, atol=0, msg=name)


def test_a_fit_is_the_same_from_partial_sums(model, home, tmp_path):
    home("one")
    from cutaway.methods.shortcut.api import fit

    options = {"model": model, "text": "docs", "limit": 60, "quiet": True}
    here = fit(**options, runs=str(tmp_path / "here"))
    there = fit(**options, runs=str(tmp_path / "there"), engine="local:2")
    numbers = pl.selectors.float()
    assert here.rows.select(~numbers).equals(there.rows.select(~numbers))
    assert_frame_equal(here.rows, there.rows, rel_tol=1e-6)


def test_nextword_reads_its_texts_on_the_engine_and_measures_the_same(home, tmp_path):
    home("one")
    options = {
        "model": str(toy_model(tmp_path / "toy")), "data": labelled(40), "quiet": True,
        "features": ["f"], "repeats": 2, "baselines": ["majority"],
    }  # fmt: skip
    there = cutaway.nextword(**options, runs=str(tmp_path / "there"), engine="local:2").rows
    assert there.equals(cutaway.nextword(**options, runs=str(tmp_path / "here")).rows)
