"""Trainable weights and adapters: changed, merged and restored."""

import pytest
import torch

from cutaway.methods.inject.trainable import (
    WEIGHT_PREFIXES,
    full_weights,
    lora_weights,
    merged_adapters,
)
from cutaway.models.load import open_model
from tests.methods.inject.toys import (
    teach,
)


def test_adapters_are_merged_into_plain_weights(toys, tmp_path) -> None:
    lm = open_model(toys["causal"], check=False)
    ids, chance = torch.tensor([[1, 5, 9, 7]]), torch.Generator().manual_seed(0)
    with lora_weights(lm, 2, seed=0) as trainable:
        with torch.no_grad():
            for name, value in trainable.params.items():
                drawn = torch.randn(value.shape, generator=chance)
                value.copy_(drawn if "lora_B" in name else value)
        adapted = lm.module(input_ids=ids).logits
        with merged_adapters(lm, trainable):
            # (W + BA) x and W x + B (A x) round differently.
            gap = (lm.module(input_ids=ids).logits - adapted).abs().max()
            assert gap <= 1e-4 * adapted.abs().max()
            assert not any("lora" in name for name in lm.params())
    assert not torch.allclose(lm.module(input_ids=ids).logits, adapted)
    result = teach(toys, tmp_path, regulariser="ewc,kl", lora=2, strength=[1])
    assert set(result.rows["regulariser"]) >= {"ewc+lora2", "kl+lora2"}


@pytest.mark.parametrize("which", WEIGHT_PREFIXES)
def test_chosen_weights_are_trained_and_restored(which, toys) -> None:
    lm = open_model(toys["causal"], check=False)
    before = {name: value.clone() for name, value in lm.params().items()}
    with full_weights(lm, which) as trainable:
        blocks = [n for n in before if n.startswith(f"{lm.anatomy.blocks}.")]
        last = [n for n in blocks if n.split(".")[2] == str(lm.layers - 1)]
        assert (
            list(trainable.params) == {"all": list(before), "blocks": blocks, "last": last}[which]
        )
        assert trainable.weights().keys() == trainable.anchor.keys()
        with torch.no_grad():
            for value in trainable.params.values():
                value.add_(1.0)
        with merged_adapters(lm, trainable) as weights:
            assert all(torch.equal(v, before[n] + 1.0) for n, v in weights.items())
    assert all(torch.equal(value, before[name]) for name, value in lm.params().items())


def test_adapters_start_without_a_change_and_are_removed(toys) -> None:
    lm = open_model(toys["causal"], check=False)
    before = {name: value.clone() for name, value in lm.params().items()}
    with lora_weights(lm, 2, seed=0) as trainable:
        assert all(torch.equal(w, before[n]) for n, w in trainable.weights().items())
        first = {name: value.detach().clone() for name, value in trainable.params.items()}
    assert list(lm.params()) == list(before)
    assert all(torch.equal(value, before[name]) for name, value in lm.params().items())
    for seed, equal in ((0, True), (1, False)):
        with lora_weights(lm, 2, seed=seed) as again:
            same = all(torch.equal(value, first[name]) for name, value in again.params.items())
        assert same == equal
