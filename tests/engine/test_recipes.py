"""The same command on every engine gives the same table."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import cutaway
from cutaway.extract.model_handle import ModelHandle, make_model_handle
from cutaway.methods.probe.spec import ProbeSpec
from cutaway.models.load import open_model
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
