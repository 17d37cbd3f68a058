"""Mask search: optimizers, starting masks, the smallest sufficient mask."""

import numpy as np
import pytest
import torch

from cutaway.console import Console
from cutaway.core.errors import BadSpec
from cutaway.methods.graft import mask_search
from cutaway.methods.graft.mask_search import START_CANDIDATES, _top_of_learned
from cutaway.methods.graft.maths.masks import MASKS, RESCALED
from cutaway.methods.graft.maths.select import intersection_size
from cutaway.methods.graft.skill import load_skill
from cutaway.training.batch_order import make_batch_order
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


def test_the_default_learning_rate_improves_a_random_starting_mask(toy) -> None:
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


@pytest.fixture(scope="module")
def search(request_of):
    request = request_of(slope_examples=6, step_examples=12, steps=2, every=1)
    return request.search(Console(quiet=True))


def weights(search) -> dict[str, torch.Tensor]:
    return {name: param.detach().clone() for name, param in search.pair.params.items()}


@pytest.mark.parametrize("kind", sorted(set(MASKS) - {"biases"}))
def test_a_baseline_has_the_size_and_leaves_the_weights_alone(search, kind: str) -> None:
    before = weights(search)
    patch = search.baseline(kind, 50, seed=1)
    assert patch.size == 50
    assert all(torch.equal(now, before[name]) for name, now in weights(search).items())
    if kind not in RESCALED:
        for name, indices in patch.mask.indices.items():
            assert torch.equal(patch.after[name], search.pair.tuned[name].take(indices))


def test_gradients_rank_weights_as_a_direct_calculation(search) -> None:
    search.rank_by_gradients([40])
    rng = np.random.default_rng([search.spec.seed, 2])
    rows = np.sort(rng.choice(search.train, 6, replace=False))
    params, model = search.pair.params, search.pair.model
    for param in params.values():
        param.requires_grad_(True)
    loss = sum(model.losses(rows[i : i + 1]).sum() for i in range(6)) / 6
    grads = dict(zip(params, torch.autograd.grad(loss, list(params.values())), strict=True))
    for param in params.values():
        param.requires_grad_(False)
    saliency = torch.cat([
        (grads[n] * (search.pair.tuned[n] - search.pair.base[n])).abs().reshape(-1) for n in params
    ])  # fmt: skip
    mask, start, chosen = search.gradient_masks["grad_movement", 40], 0, []
    for name in params:
        chosen += [start + int(i) for i in mask.indices.get(name, [])]
        start += params[name].numel()
    lowest = saliency[chosen].min()
    assert int((saliency > lowest * 1.001).sum()) <= 40
    assert search.step_units[40] == pytest.approx(float(saliency[chosen].mean()), rel=1e-3)


def test_the_terms_of_a_step_sum_to_the_loss_of_its_examples(search, monkeypatch) -> None:
    monkeypatch.setattr(mask_search, "BACKWARD_TOKENS", {"cpu": 40})
    terms = search.losses(0)(1)
    assert len(terms) > 1
    with torch.no_grad():
        total = sum(float(term()) for term in terms)
        seen = make_batch_order([search.pair.model.examples.rows[i] for i in search.train], 12, 0,
                                window=1)(0)  # fmt: skip
        expected = float(search.pair.model.losses(search.train[seen]).mean())
    assert total == pytest.approx(expected, rel=1e-5)


def test_a_part_of_a_learned_mask_prefers_the_best_mask(search) -> None:
    learned = search.learn(60, 0)
    part = _top_of_learned(learned, 20)
    assert part.size == 20
    assert intersection_size(part, learned.mask) == 20
    more = _top_of_learned(learned, 80)
    assert intersection_size(more, learned.mask) == 60


def test_the_best_start_is_the_better_of_the_candidates(search) -> None:
    start = search.starting_mask(30, 0)
    candidates = [search._mask(kind, 30, torch.Generator()) for kind in START_CANDIDATES]
    scores = [search._patch_score(search.patch(mask)) for mask in candidates]
    assert start.same(candidates[int(np.argmax(scores))])


def test_no_gain_means_no_smallest_mask(search, monkeypatch) -> None:
    monkeypatch.setattr(type(search.evaluator), "metric", lambda self: 0.5)
    with pytest.raises(BadSpec, match="keep_gain needs a gain"):
        search.find_smallest(10, 0)
