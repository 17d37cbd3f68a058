"""The estimated cost of a sweep."""

import torch

from cutaway.catalog import VERBS
from cutaway.methods.inject.cost import sweep_cost
from cutaway.methods.inject.recipe import resolve
from cutaway.methods.inject.spec import InjectSpec
from cutaway.methods.inject.trainable import lora_weights
from cutaway.models.load import open_model
from cutaway.recipe import life_cycle
from cutaway.recipe.life_cycle import Context
from tests import tiny
from tests.methods.inject.toys import (
    SHORT,
    SUMS,
)


def test_an_estimate_counts_the_adapters_where_they_are_trained(toys, tmp_path) -> None:
    (tmp_path / "t.txt").write_text("\n".join(tiny.toy_language(30, seed=5)))
    given = {"model": toys["causal"], "data": SUMS, "retain": str(tmp_path / "t.txt"), **SHORT}
    costs = {
        ranks: life_cycle.estimate(
            VERBS["inject"], InjectSpec(**given, regulariser="none", lora=ranks)
        )[0]
        for ranks in ("0", "2", "0,2")
    }
    lm = open_model(toys["causal"], check=False)
    with lora_weights(lm, 2, seed=0) as trainable:
        adapters = sum(p.numel() for p in trainable.params.values())
    assert costs["2"].counts["weights"] == adapters
    assert costs["0"].counts["weights"] == costs["0,2"].counts["weights"] == lm.parameters
    assert costs["2"].memory_mb < costs["0"].memory_mb == costs["0,2"].memory_mb
    assert costs["0,2"].counts["steps"] == 2 * costs["2"].counts["steps"]


def test_an_estimate_changes_no_weight(toys, tmp_path) -> None:
    (tmp_path / "t.txt").write_text("\n".join(tiny.toy_language(30, seed=5)))
    spec = InjectSpec(model="m", data=SUMS, retain=str(tmp_path / "t.txt"), **(SHORT | {"lr": 0.1}))
    lm = open_model(toys["causal"], check=False)
    before = {name: value.clone() for name, value in lm.params().items()}
    sweep_cost(resolve(spec, Context(objects={"m": lm})))
    assert all(torch.equal(value, before[name]) for name, value in lm.params().items())
    assert not any(value.requires_grad for value in lm.params().values())
