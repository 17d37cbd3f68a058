"""Extraction on workers: the same states, no text lost, only missing rows read."""

import numpy as np
import pytest
import torch

from cutaway.core.errors import Missing
from cutaway.core.textset import TextSet
from cutaway.extract.activations import extract, need_shared_store, split_ranges
from cutaway.extract.model_handle import ModelHandle, make_model_handle
from cutaway.extract.request import ExtractionRequest, build_token_rows
from cutaway.models.load import open_model
from cutaway.recipe.options import RunOptions
from cutaway.store.activations import open_activations
from tests.tiny import SENTENCES, tiny


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


def handle_of(lm) -> ModelHandle:
    handle = make_model_handle(lm, RunOptions())
    assert handle is not None
    return handle


@pytest.mark.parametrize("ask", [
    ExtractionRequest(layers=(0, 2), pools=("last", "mean")),
    ExtractionRequest(layers=(1,), pools=("all",)),
    ExtractionRequest(layers=(2,), pools=("marks",), input_mode="cut", positions=2),
    ExtractionRequest(layers=(2,), pools=("mean", "last"), window=8),
], ids=["pooled", "ragged", "marks", "windows"])  # fmt: skip
def test_states_read_in_ranges_are_those_of_one_pass(lm, model, home, ask, monkeypatch):
    monkeypatch.setattr("cutaway.extract.activations.MIN_RANGE_TOKENS", 40)
    texts = TextSet("long", tuple(f"{a} {b}" for a in SENTENCES for b in SENTENCES))
    home("one")
    one = extract(lm, texts, ask)
    home("many")
    many = extract(lm, texts, ask, engine="local:2", handle=handle_of(lm))
    assert many.stats.rows == one.stats.rows
    assert many.stats.tokens == one.stats.tokens
    for name, (layer, pool) in ask.columns().items():
        if pool in ("all", "marks"):
            (a, starts), (b, same) = one.tokens(layer, pool), many.tokens(layer, pool)
            assert torch.equal(starts, same)
        else:
            a, b = one.column(layer, pool), many.column(layer, pool)
        torch.testing.assert_close(a, b, msg=name)
    assert len(list(many.table.folder.glob("shard-*.json"))) > 2


def test_a_pass_that_was_cut_short_reads_only_what_is_missing(lm, model, home):
    home("one")
    texts = TextSet("few", SENTENCES)
    ask = ExtractionRequest(layers=(1,))
    whole = extract(lm, texts, ask)
    home("two")
    shelf = open_activations(ask.key(lm, texts), len(texts))
    with shelf.writer() as writer:
        writer.append([0, 3], {"1/last": whole.column(1)[[0, 3]]})
    rest = extract(lm, texts, ask, engine="local:2", handle=handle_of(lm))
    assert rest.stats.rows == len(texts) - 2
    torch.testing.assert_close(rest.column(1), whole.column(1))


def test_ranges_hold_every_text_once_and_windows_stay_together(lm, monkeypatch):
    texts = TextSet("long", tuple(f"{a} {b}" for a in SENTENCES for b in SENTENCES))
    fed = build_token_rows(lm, texts, ExtractionRequest(layers=(0,), pools=("mean",), window=8))
    wanted = np.arange(1, len(texts), 2)
    monkeypatch.setattr("cutaway.extract.activations.MIN_RANGE_TOKENS", 40)
    ranges = list(split_ranges(fed, wanted, workers=2))
    assert len(ranges) > 2
    assert np.array_equal(np.concatenate([r.texts for r in ranges]), wanted)
    for part in ranges:
        for place, text in enumerate(part.texts):
            mine = [
                part.token_rows.rows[i] for i in np.flatnonzero(part.token_rows.text_index == place)
            ]
            assert mine == [fed.rows[i] for i in np.flatnonzero(fed.text_index == text)]


def test_workers_that_write_to_another_disk_are_noticed(lm, home):
    home("one")
    texts, ask = TextSet("few", SENTENCES), ExtractionRequest(layers=(1,))
    shelf = open_activations(ask.key(lm, texts), len(texts))
    with shelf.writer() as writer:
        writer.append([0], {"1/last": torch.zeros(1, lm.width)})
    with pytest.raises(Missing, match=f"{len(SENTENCES) - 1} texts are not in .*CUTAWAY_HOME"):
        need_shared_store(shelf, {"1/last": ("1", "last")})
