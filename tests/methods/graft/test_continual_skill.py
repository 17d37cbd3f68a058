"""The skill of one task in a sequence: exact size, disjoint metadata, weights as before."""

import numpy as np
import torch

from cutaway.console import Console
from cutaway.methods.graft.continual_skill import (
    SKILL_KINDS,
    ContinualTask,
    LearnedTaskSkill,
    _learn_spec,
    learn_task_skill,
)
from cutaway.methods.graft.learn import resolve
from cutaway.methods.graft.maths.select import mask_size
from cutaway.methods.graft.spec import ContinualSpec, LearnSpec
from cutaway.models.digests import checksum
from cutaway.recipe.life_cycle import Context


def learned_skill(toy) -> tuple[LearnedTaskSkill, dict, ContinualSpec]:
    base, tuned = toy.pair("bert")
    given = {"base": base, "task": toy.task, "data": toy.data}
    request = resolve(LearnSpec(tuned=tuned, text="none", **given), Context())
    pair, task = request.pair, ContinualTask(request.pair.model, request.split)
    spec = ContinualSpec(
        base=base, task=(toy.task,), sparsity=0.05, mask_steps=2, step_examples=16, seed=3
    )
    before = {name: value.clone() for name, value in pair.base.items()}
    with torch.no_grad():
        for name, value in pair.params.items():
            value.copy_(pair.tuned[name])
    first = checksum(pair.lm.params())
    learned = learn_task_skill(
        spec, pair.lm, task, pair.params, before, "base checksum", Console(quiet=True)
    )
    return learned, {"before": before, "params": pair.params, "tuned": first}, spec


def test_the_skill_has_its_size_and_the_weights_are_those_of_before(toy) -> None:
    learned, state, spec = learned_skill(toy)
    total = sum(value.numel() for value in state["before"].values())
    assert learned.skill.size == mask_size(spec.sparsity, total)
    assert all(torch.equal(state["params"][n].data, v) for n, v in state["before"].items())
    meta = learned.skill.meta
    assert meta["base"]["checksum"] == "base checksum"
    assert meta["tuned"]["checksum"] == state["tuned"]
    assert meta["tuned"]["name"].endswith("after toyfeel")


def test_the_metadata_has_scores_by_kind_and_the_earlier_tasks(toy) -> None:
    learned, _, _ = learned_skill(toy)
    rows = [
        {"kind": kind, "metric": "accuracy", "value": value, "step": 1}
        for kind, value in zip(SKILL_KINDS, (0.5, 0.9, 0.8), strict=True)
    ]
    meta = learned.with_metadata(rows, ["first"]).meta
    assert meta["after"] == ["first"]
    found = {
        kind: meta["metrics"][kind]["accuracy"]["value"] for kind in ("base", "tuned", "learned")
    }
    assert found == {"base": 0.5, "tuned": 0.9, "learned": 0.8}
    assert meta["sparsity"] == learned.skill.size / learned.search.pair.total


def test_the_mask_options_of_the_sequence_become_those_of_learning() -> None:
    spec = ContinualSpec(
        base="b", task=("x", "y"), sparsity=0.5, mask_optimizer="adam", mask_steps=7,
        step_examples=9, seed=4,
    )  # fmt: skip
    made = _learn_spec(spec, "x")
    assert (made.optimizer, made.steps, made.step_examples) == ("adam", 7, 9)
    assert (made.sparsity, made.seed, made.baselines) == ((0.5,), 4, ())
    assert np.isclose(made.sparsity[0], spec.sparsity)
