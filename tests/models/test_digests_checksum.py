"""The checksum of weights sees every name, shape, type and bit."""

import pytest
import torch
from torch import nn

from cutaway.models.digests import checksum, module_checksum, with_checksum

WEIGHTS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.zeros(2, dtype=torch.bfloat16)}


def test_equal_tensors_have_equal_checksums() -> None:
    copies = {name: value.clone() for name, value in WEIGHTS.items()}
    strided = {"a": WEIGHTS["a"].t().contiguous().t(), "b": WEIGHTS["b"]}
    assert checksum(WEIGHTS) == checksum(copies) == checksum(strided)


@pytest.mark.parametrize(
    "change",
    [{"a": WEIGHTS["a"] + 1e-6}, {"a": WEIGHTS["a"].reshape(3, 2)}, {"a": WEIGHTS["a"].double()},
     {"c": WEIGHTS["a"]}, {"a": -WEIGHTS["a"]}],
    ids=["bit", "shape", "type", "name", "sign of zero"],
)  # fmt: skip
def test_any_change_changes_the_checksum(change) -> None:
    assert checksum({**WEIGHTS, **change}) != checksum(WEIGHTS)


def test_saved_buffers_count_and_tied_weights_count_once() -> None:
    module = nn.BatchNorm1d(2)
    before = module_checksum(module)
    module.running_mean += 1
    assert module_checksum(module) != before
    tied = nn.ModuleDict({"one": nn.Linear(2, 2, bias=False), "two": nn.Linear(2, 2, bias=False)})
    tied["two"].weight = tied["one"].weight
    assert module_checksum(tied) == checksum({"one.weight": tied["one"].weight})


def test_a_changed_model_gets_another_digest_until_it_is_restored(lm_of) -> None:
    lm = with_checksum(lm_of("llama"), same_each_time=False)
    opened, weight = lm.digest, next(iter(lm.params().values()))
    before = weight.data.clone()
    weight.data[0] += 1
    changed = lm.refresh_digest().digest
    weight.data.copy_(before)
    assert changed != opened
    assert lm.refresh_digest().digest == opened
