"""The inputs of probes: layers, splits, features."""

import numpy as np
import pytest
import torch

from cutaway.console import Console
from cutaway.core.spec import build_spec
from cutaway.core.textset import TextSet
from cutaway.methods.probe import inputs as module
from cutaway.methods.probe.inputs import ProbeInputs
from cutaway.methods.probe.maths.layer_mix import parse_layers
from cutaway.methods.probe.spec import ProbeSpec
from cutaway.solvers.rows import RowBlocks, as_row_blocks
from tests.tiny import SENTENCES


def probe_inputs(lm, n: int = 40, **options) -> ProbeInputs:
    texts = tuple(f"{SENTENCES[i % 7][:24]} {i}" for i in range(n))
    labels = np.arange(n) % 2
    data = TextSet("set", texts, labels=labels, task="binary", classes=("a", "b"))
    spec = build_spec(ProbeSpec, {"model": lm.name, "data": "set", "repeats": 3, **options})
    return ProbeInputs(spec, lm, data, {}, Console(quiet=True))


def test_a_layer_that_is_named_twice_is_probed_once(lm) -> None:
    mixes = probe_inputs(lm, layers=["1", "all", "mean:1,2"]).mixes
    assert [m.name for m in mixes] == ["1", "0", "2", "3", "mean:1,2"]


def test_one_forward_pass_stores_every_layer_that_a_mix_needs(lm) -> None:
    request = probe_inputs(lm, layers=["3", "mean:0,1"], pool="mean,learned").request
    assert request.layers == (0, 1, 3)
    assert request.pools == ("mean", "all")


@pytest.mark.parametrize("protocol", ["repeats", "kfold", "kshot", "curve"])
def test_train_validation_and_test_rows_never_overlap(lm, protocol: str) -> None:
    inputs = probe_inputs(lm, protocol=protocol, shots=4, train_sizes=[8, 1.0])
    for split in inputs.splits:
        rows = np.concatenate([split.train, split.val, split.test])
        assert len(np.unique(rows)) == len(rows)
        assert set(inputs.labels[split.train]) == {0, 1}


def test_the_sizes_of_a_curve_are_rows_or_shares_of_the_training_part(lm) -> None:
    full = min(len(split.train) for split in probe_inputs(lm).splits)
    curve = probe_inputs(lm, protocol="curve", train_sizes=[8, 0.5, 1.0])
    sizes = {len(split.train) for split in curve.splits}
    assert sizes == {8, round(0.5 * full), full}


def test_a_mix_is_computed_from_the_stored_layers(lm) -> None:
    inputs = probe_inputs(lm, layers=["0", "2", "mean:0,2", "concat:0,2"])
    states = {m.name: inputs.states(m, "last") for m in inputs.mixes}
    np.testing.assert_allclose(states["mean:0,2"], (states["0"] + states["2"]) / 2, atol=1e-6)
    assert torch.equal(states["concat:0,2"], torch.cat([states["0"], states["2"]], 1))


def test_large_features_are_read_in_blocks_with_the_same_values(lm, monkeypatch) -> None:
    inputs = probe_inputs(lm)
    (mix,) = parse_layers("2", lm.layers)
    plain = inputs.states(mix, "last")
    monkeypatch.setattr(module, "MAX_MATRIX_BYTES", 0)
    monkeypatch.setattr(module, "BLOCK_ROWS", 7)
    blocks = inputs.states(mix, "last")
    assert isinstance(blocks, RowBlocks)
    read = [block for _, block in as_row_blocks(blocks)]
    assert len(read) > 1 and torch.equal(torch.cat(read).float(), plain.float())


def test_token_features_have_the_rows_of_each_text_in_order(lm) -> None:
    inputs = probe_inputs(lm, n=8, pool="last,learned")
    (mix,) = parse_layers("2", lm.layers)
    ragged, last = inputs.states(mix, "learned"), inputs.states(mix, "last")
    ends = torch.as_tensor(ragged.offsets)[1:] - 1
    assert torch.equal(ragged.values[ends], last)


def test_the_random_twin_has_other_states_of_the_same_shape(lm) -> None:
    inputs = probe_inputs(lm, n=8)
    (mix,) = parse_layers("3", lm.layers)
    real, twin = (inputs.states(mix, "last", of_twin=flag) for flag in (False, True))
    assert real.shape == twin.shape
    assert not torch.allclose(real, twin, atol=0.1)


def test_workers_get_no_weights_but_the_same_features(lm) -> None:
    inputs = probe_inputs(lm)
    (mix,) = parse_layers("1", lm.layers)
    expected = inputs.states(mix, "last")
    sent = inputs.for_workers()
    assert sent.lm.module is None and sent.lm.tokenizer is None
    assert "activations" in vars(sent) and "twin_activations" not in vars(sent)
    assert torch.equal(sent.states(mix, "last"), expected)
