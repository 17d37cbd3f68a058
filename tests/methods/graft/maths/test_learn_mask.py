"""Learning a mask: stopped after any step and resumed, it gives the same bits."""

import copy

import pytest
import torch

from cutaway.methods.graft.maths.learn_mask import LearnedMask, learn_mask, score_mask
from cutaway.methods.graft.maths.masks import MASKS, MaskInputs
from cutaway.methods.graft.maths.soft_mask import MaskPlan, MaskState
from tests.methods.graft.maths.toy import every, generator, loss_of


def learn(pair, plan: MaskPlan, saved=None, keep=lambda state: None) -> LearnedMask:
    module, base, tuned, x, y = pair
    params = dict(module.named_parameters())
    start = MASKS["movement"](MaskInputs(base, tuned), 20, generator())

    def score() -> float:
        with torch.no_grad():
            return float((module(x).argmax(1) == y).float().mean())

    return learn_mask(
        params, base, tuned, start, lambda step: [loss_of(module, x, y)], score, plan,
        rng=generator(5), saved=saved, keep=keep,
    )  # fmt: skip


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "mirror"])
@pytest.mark.parametrize("budget", [False, True])
@pytest.mark.parametrize("stop", [0, 3, 4, 7])
def test_a_resumed_learning_equals_an_undisturbed_one(pair, optimizer, budget, stop) -> None:
    plan = MaskPlan(steps=8, lr=0.5, optimizer=optimizer, every=3, budget=budget)
    states: dict[int, MaskState] = {}
    whole = learn(pair, plan, keep=lambda state: states.update({state.step: copy.deepcopy(state)}))
    resumed = learn(pair, plan, saved=states[stop])
    assert (resumed.score, resumed.step) == (whole.score, whole.step)
    assert str(resumed.curve) == str(whole.curve)
    assert all(torch.equal(resumed.logits[n], whole.logits[n]) for n in whole.logits)
    assert all(
        torch.equal(places, whole.mask.indices[n]) for n, places in resumed.mask.indices.items()
    )


def test_a_full_mask_is_scored_as_the_tuned_model(pair) -> None:
    module, base, tuned, *_ = pair
    params = dict(module.named_parameters())
    same = score_mask(
        params, base, tuned, every(base, 1.0),
        lambda: float(all(torch.equal(params[n].data, tuned[n]) for n in tuned)),
    )  # fmt: skip
    assert same == 1.0
