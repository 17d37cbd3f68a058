"""Sampled rows of weights, and their maps."""

import numpy as np
import pytest

from cutaway.methods.inject.weight_samples import (
    MAX_ROWS,
    WEIGHT_PROJECTIONS,
    outer_layers,
    sample_weights,
    weight_maps,
)
from cutaway.models.weight_location import weight_locator


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert"])
def test_rows_come_from_an_attention_weight_of_the_outer_layers(family, tiny_lm) -> None:
    lm = tiny_lm(family)
    sample = sample_weights("base", lm, lm.params())
    assert sample["of"] == "base"
    assert list(sample["rows"]) == [str(layer) for layer in outer_layers(lm)]
    assert {outer_layers(lm)[0], outer_layers(lm)[-1]} == {1, lm.layers}
    for layer, rows in sample["rows"].items():
        assert 2 <= len(rows) <= MAX_ROWS
        weights = [
            w.numpy().round(6)
            for n, w in lm.params().items()
            if weight_locator(lm)(n) == (int(layer), "attn") and w.ndim == 2
        ]
        assert any((np.float32(rows[0]) == np.float32(w[0])).all() for w in weights
                   if w.shape[1] == len(rows[0]))  # fmt: skip


def test_weights_that_are_not_given_are_left_out(tiny_lm) -> None:
    assert sample_weights("none", tiny_lm("llama"), {}) == {"of": "none", "rows": {}}


def test_there_is_a_map_per_layer_and_projection_with_the_base_first() -> None:
    rng = np.random.default_rng(0)
    rows = {name: rng.standard_normal((12, 5)).tolist() for name in ("b", "base", "a")}
    samples = [{"of": name, "rows": {"1": r, "4": r}} for name, r in rows.items()]
    samples[0]["rows"].pop("4")
    maps = weight_maps(samples, seed=0)
    assert [(m["layer"], m["way"]) for m in maps] == [
        (i, w) for i in (1, 4) for w in WEIGHT_PROJECTIONS
    ]
    assert list(maps[0]["points"]) == ["base", "a", "b"]
    assert list(maps[-1]["points"]) == ["base", "a"]
    assert np.array(maps[0]["points"]["b"]).shape == (12, 2)
    assert weight_maps([], seed=0) == []
