"""Mask search: optimizers, starting masks, the smallest sufficient mask."""

import pytest

from cutaway.methods.graft.maths.select import intersection_size
from cutaway.methods.graft.skill import load_skill
from tests.methods.graft.toy import value


def test_the_smallest_mask_that_keeps_the_gain_is_searched(toy) -> None:
    result = toy.learn(sparsity=0.2, keep_gain=0.9, baselines=("movement",), text="none")
    size = result.summary["sizes"][0]
    assert 1 <= size < 0.2 * result.summary["trained_weights"]
    assert value(result.rows, "learned", "size") == [size]
    assert value(result.rows, "movement", "size") == [size]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_papers_steps_and_adam_learn_too(toy, optimizer) -> None:
    result = toy.learn(optimizer=optimizer, baselines="none", text="none", steps=5)
    assert len(value(result.rows, "learned", "mask_score")) == 2


def test_the_default_rate_leads_away_from_a_start_drawn_by_chance(toy) -> None:
    given = {"start": "random", "baselines": "none", "text": "none", "seeds": 0}
    result = toy.learn(**given, steps=6, every=2)
    begun = toy.learn(**given, steps=0)
    skills = [load_skill(r.path / "skill.safetensors").patch.mask for r in (result, begun)]
    assert intersection_size(*skills) < 0.6 * skills[1].size
    judged = [value(r.rows, "learned", "judge")[0] for r in (result, begun)]
    assert judged[0] > judged[1]


def test_a_warm_start_begins_with_the_other_skill(toy, learned) -> None:
    family, _, out = learned
    result = toy.learn(family, start=str(out), steps=0, baselines="none", text="none")
    again = load_skill(result.path / "skill.safetensors")
    assert again.patch.mask.same(load_skill(out).patch.mask)
