"""Trainable weights and adapters: changed, merged and restored."""

from pathlib import Path

import pytest
import torch

from cutaway.methods.inject.trainable import (
    START_FILE,
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


def test_initial_weights_are_views_of_a_file_if_there_is_a_folder(toys, tmp_path) -> None:
    lm = open_model(toys["causal"], check=False)
    before = {name: value.clone() for name, value in lm.params().items()}
    with full_weights(lm, "all", tmp_path) as trainable:
        with torch.no_grad():
            for value in trainable.params.values():
                value.add_(1.0)
        (tmp_path / START_FILE).unlink()
        assert all(torch.equal(v, before[n]) for n, v in trainable.anchor.items())
        assert all(is_in_file(value, START_FILE) for value in trainable.anchor.values())
    assert all(torch.equal(value, before[name]) for name, value in lm.params().items())
    with full_weights(lm, "all") as trainable:
        assert not any(is_in_file(value, START_FILE) for value in trainable.anchor.values())


def is_in_file(value: torch.Tensor, name: str) -> bool:
    """Whether a tensor's memory is that of a mapped file (on Linux; elsewhere it is not known)."""
    maps = Path("/proc/self/maps")
    if not maps.is_file():
        pytest.skip("no list of mapped files")
    for line in maps.read_text().splitlines():
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if start <= value.data_ptr() < end:
            return name in line
    return False


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
