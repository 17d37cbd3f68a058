"""The soft mask: its gradient is autograd's, its masks are exact, a planted skill is found."""

import pytest
import torch
from torch import nn

from cutaway.core.errors import BadSpec, Mismatch, Missing
from cutaway.methods.graft.maths.gain import find_smallest_size, relative_gain
from cutaway.methods.graft.maths.masks import MASKS, MaskInputs, TaskGradients, task_gradients
from cutaway.methods.graft.maths.patch import (
    CONFLICT_RULES,
    count_mismatches,
    graft_weights,
    make_patch,
    need_matching_shapes,
    patched_weights,
    stack_patches,
    values_at,
)
from cutaway.methods.graft.maths.select import Mask
from cutaway.methods.graft.maths.soft_mask import (
    LearnedMask,
    MaskPlan,
    SoftMask,
    gradients_enabled,
    learn_mask,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def net(seed: int = 0, wide: int = 12, dtype: torch.dtype = torch.float32) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, wide), nn.Tanh(), nn.Linear(wide, 3)).to(dtype)


def copies(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in module.named_parameters()}


@pytest.fixture
def pair():
    """A live module, its weights as base, other weights as tuned, inputs and classes."""
    module = net(0)
    base = copies(module)
    rng = generator(1)
    tuned = {n: v + 0.1 * torch.randn(v.shape, generator=rng) for n, v in base.items()}
    x, y = torch.randn(32, 6, generator=rng), torch.randint(3, (32,), generator=rng)
    return module, base, tuned, x, y


def loss_of(module, x, y):
    return lambda: nn.functional.cross_entropy(module(x), y)


def every(base, share: float) -> Mask:
    """All places, or none."""
    return Mask({n: torch.arange(v.numel()) for n, v in base.items()} if share else {})


def test_nothing_chosen_is_the_base_and_all_chosen_is_the_tuned_model(pair) -> None:
    _, base, tuned, *_ = pair
    for mask, expected in ((every(base, 0), base), (every(base, 1), tuned)):
        made = graft_weights(base, tuned, mask)
        assert all(torch.equal(made[n], expected[n]) for n in base)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_soft_mask_at_its_ends_is_base_and_tuned_bit_for_bit(dtype) -> None:
    module = net(0, dtype=dtype)
    base, tuned = copies(module), copies(net(3, dtype=dtype))
    params = dict(module.named_parameters())
    soft = SoftMask(params, base, tuned, Mask({}), rng=generator())
    for far, expected in ((-200.0, base), (200.0, tuned)):
        for logits in soft.logits.values():
            logits.fill_(far)
        soft.write()
        assert all(torch.equal(params[n].data, expected[n]) for n in base)


def paper_gradient(module, base, tuned, start: Mask, logits, x, y):
    """dL/dS by autograd of gamma = gamma_base + (1 - 2 gamma_base) sigmoid(S - 10)."""
    gamma_base = {n: torch.zeros(v.numel()) for n, v in base.items()}
    for name, places in start.places.items():
        gamma_base[name][places] = 1.0
    s = {
        n: (torch.where(gamma_base[n] == 1, -z, z) + 10).requires_grad_() for n, z in logits.items()
    }
    theta = {}
    for n, value in base.items():
        gamma = gamma_base[n] + (1 - 2 * gamma_base[n]) * torch.sigmoid(s[n] - 10)
        theta[n] = value + gamma.reshape(value.shape) * (tuned[n] - value)
    loss = nn.functional.cross_entropy(torch.func.functional_call(module, theta, (x,)), y)
    grads = torch.autograd.grad(loss, list(s.values()))
    return s, gamma_base, dict(zip(s, grads, strict=True)), float(loss)


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_step_on_the_logits_is_the_papers_step_on_its_scores(pair, pieces: int) -> None:
    module, base, tuned, x, y = pair
    params = dict(module.named_parameters())
    start = MASKS["movement"](MaskInputs(base, tuned), 20, generator())
    soft = SoftMask(params, base, tuned, start, rng=generator(5))
    for logits in soft.logits.values():
        logits.mul_(0.2)
    s, gamma_base, grads, loss = paper_gradient(module, base, tuned, start, soft.logits, x, y)
    lr = 7.0
    expected = {n: (s[n].detach() - lr * grads[n] - 10) * (1 - 2 * gamma_base[n]) for n in base}
    bits = torch.tensor_split(torch.arange(32), pieces)
    parts = [lambda b=b: loss_of(module, x[b], y[b])() * len(b) / 32 for b in bits]
    with gradients_enabled(params, base):
        soft.write()
        found = soft.step(parts, MaskPlan(lr=lr))
    assert found == pytest.approx(loss, abs=1e-5)
    for name in base:
        torch.testing.assert_close(soft.logits[name], expected[name], atol=1e-5, rtol=1e-4)


def test_a_mirror_step_in_pieces_is_the_step_of_the_whole_and_holds_no_gradient(pair) -> None:
    module, base, tuned, x, y = pair
    params = dict(module.named_parameters())
    start = MASKS["movement"](MaskInputs(base, tuned), 20, generator())
    plan = MaskPlan(lr=7.0, optimizer="mirror", budget=True)
    held: list[bool] = []

    def part(bit: torch.Tensor) -> torch.Tensor:
        held.append(any(p.grad is not None for p in params.values()))
        return loss_of(module, x[bit], y[bit])() * len(bit) / 32

    found = []
    for pieces in (1, 3):
        soft = SoftMask(params, base, tuned, start, rng=generator(5))
        bits = torch.tensor_split(torch.arange(32), pieces)
        with gradients_enabled(params, base):
            soft.write()
            soft.step([lambda b=b: part(b) for b in bits], plan)
        found.append(soft.logits)
    assert held == [False] * 4
    for name in base:
        torch.testing.assert_close(found[0][name], found[1][name], atol=1e-5, rtol=1e-5)


def test_adam_is_torchs_adam_on_the_logits(pair) -> None:
    module, base, tuned, x, y = pair
    params = dict(module.named_parameters())
    soft = SoftMask(params, base, tuned, Mask({}), rng=generator(5))
    for logits in soft.logits.values():
        logits.mul_(0.1)
    z = {n: v.clone().requires_grad_() for n, v in soft.logits.items()}
    optimizer = torch.optim.Adam(list(z.values()), lr=0.3)
    for _ in range(4):
        theta = {n: torch.lerp(v, tuned[n], z[n].sigmoid().view(v.shape)) for n, v in base.items()}
        optimizer.zero_grad()
        nn.functional.cross_entropy(torch.func.functional_call(module, theta, (x,)), y).backward()
        optimizer.step()
    with gradients_enabled(params, base):
        soft.write()
        for _ in range(4):
            soft.step([loss_of(module, x, y)], MaskPlan(lr=0.3, optimizer="adam"))
    for name in base:
        torch.testing.assert_close(soft.logits[name], z[name].detach(), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "mirror"])
@pytest.mark.parametrize("keep", [1, 9, 40])
def test_a_learned_mask_has_its_exact_size_and_is_never_worse_than_its_start(
    pair, optimizer, keep
) -> None:
    module, base, tuned, x, y = pair
    params = dict(module.named_parameters())
    start = MASKS["movement"](MaskInputs(base, tuned), keep, generator())
    loss = loss_of(module, x, y)
    lr = 1e4 if optimizer == "sgd" else 0.5
    plan = MaskPlan(steps=20, lr=lr, optimizer=optimizer, every=4)
    learned = learn_mask(
        params, base, tuned, start, lambda step: [loss], lambda: -float(loss()), plan,
        rng=generator(),
    )  # fmt: skip
    assert learned.mask.size == keep
    assert learned.score >= learned.curve[0]["score"]
    assert [point["step"] for point in learned.curve] == [0, 4, 8, 12, 16, 20]
    assert all(torch.equal(params[n].data, base[n]) for n in base)
    assert not any(p.requires_grad and p.grad is not None for p in params.values())


def planted(seed: int = 0):
    """Ten weights of one layer matter; the others moved further, and for nothing."""
    module = nn.Linear(200, 2, bias=False)
    rng = generator(seed)
    base = {"weight": torch.zeros(2, 200)}
    x = torch.randn(256, 200, generator=rng)
    matter = torch.randperm(200, generator=rng)[:5]
    y = (x[:, matter].sum(1) > 0).long()
    tuned = {"weight": torch.zeros(2, 200)}
    # Noise at weights whose inputs are always 0: it moves nothing but itself.
    quiet = torch.tensor([i for i in range(200) if i not in matter.tolist()])
    x[:, quiet] *= 0.01
    tuned["weight"][:, quiet] = 2.0 * torch.randn(2, 195, generator=rng).sign()
    tuned["weight"][1, matter], tuned["weight"][0, matter] = 1.0, -1.0
    module.weight.data.zero_()
    return module, base, tuned, x, y, torch.cat([matter, 200 + matter]).sort().values


@pytest.mark.parametrize(("optimizer", "lr"), [("sgd", 1e7), ("mirror", 300.0)])
def test_a_planted_skill_is_found(optimizer, lr) -> None:
    module, base, tuned, x, y, places = planted()
    start = MASKS["movement"](MaskInputs(base, tuned), 10, generator())
    assert not torch.isin(start.places["weight"], places).any()
    loss = loss_of(module, x, y)
    accuracy = lambda: float((module(x).argmax(1) == y).float().mean())  # noqa: E731
    learned = learn_mask(
        dict(module.named_parameters()), base, tuned, start, lambda step: [loss], accuracy,
        MaskPlan(steps=60, lr=lr, optimizer=optimizer, every=1), rng=generator(),
    )  # fmt: skip
    assert torch.equal(learned.mask.places["weight"], places)
    assert learned.score > 0.99


@pytest.mark.parametrize("kind", MASKS)
def test_every_baseline_has_the_size_it_was_asked_for(pair, kind: str) -> None:
    module, base, tuned, x, y = pair
    params = dict(module.named_parameters())
    with gradients_enabled(params, base):
        found = task_gradients(
            params, [loss_of(module, x[i : i + 1], y[i : i + 1]) for i in range(8)]
        )
    material = MaskInputs(base, tuned, found)
    masks = [MASKS[kind](material, keep, generator()) for keep in (1, 10, 15)]
    assert [mask.size for mask in masks] == [1, 10, 15]
    again = MASKS[kind](material, 15, generator())
    assert again.same(masks[2])


def test_biases_are_all_there_is_when_fewer_than_asked(pair) -> None:
    _, base, tuned, *_ = pair
    mask = MASKS["biases"](MaskInputs(base, tuned), 100, generator())
    assert mask.size == 15
    assert set(mask.places) == {"0.bias", "2.bias"}
    plain = {n: v for n, v in base.items() if "bias" not in n}
    with pytest.raises(Missing, match="no biases"):
        MASKS["biases"](MaskInputs(plain, plain), 3, generator())


@pytest.mark.parametrize("kind", sorted(set(MASKS) - {"biases", "uniform"}))
def test_weights_that_moved_are_chosen_before_any_other(kind: str) -> None:
    base = {"w": torch.zeros(500)}
    there = torch.arange(0, 500, 50)
    tuned = {"w": torch.zeros(500).index_fill_(0, there, 1.0)}
    slope = {"w": torch.rand(500, generator=generator()) + 0.1}
    material = MaskInputs(base, tuned, TaskGradients(slope, slope))
    chosen = MASKS[kind](material, 10, generator()).places["w"]
    assert chosen.tolist() == there.tolist()
    assert set(there.tolist()) <= set(MASKS[kind](material, 12, generator()).places["w"].tolist())


def test_slopes_are_means_over_single_examples(pair) -> None:
    module, base, _, x, y = pair
    params = dict(module.named_parameters())
    with gradients_enabled(params, base):
        found = task_gradients(
            params, [loss_of(module, x[i : i + 1], y[i : i + 1]) for i in range(32)]
        )
        whole = torch.autograd.grad(loss_of(module, x, y)(), list(params.values()))
    for name, grad in zip(params, whole, strict=True):
        torch.testing.assert_close(found.mean[name], grad, atol=1e-6, rtol=1e-4)
        assert bool((found.square[name] >= found.mean[name].square() - 1e-7).all())
    with pytest.raises(Missing, match="at least one"):
        task_gradients(params, [])


def test_a_patch_is_on_inside_and_gone_outside_bit_for_bit(pair) -> None:
    module, base, tuned, *_ = pair
    params = dict(module.named_parameters())
    patch = make_patch(base, tuned, MASKS["random"](MaskInputs(base, tuned), 11, generator()))
    with patched_weights(params, patch):
        assert count_mismatches(params, patch.mask, patch.after) == 0
        assert sum(int((params[n] != base[n]).sum()) for n in base) == 11
    assert all(torch.equal(params[n].data, base[n]) for n in base)
    assert count_mismatches(params, patch.mask, patch.after) == 11
    assert count_mismatches(params, patch.mask, patch.before) == 0


def test_a_stretched_patch_goes_that_much_further(pair) -> None:
    _, base, tuned, *_ = pair
    mask = every(base, 1)
    patch = make_patch(base, tuned, mask, scale=3.0)
    for name, after in patch.after.items():
        moved = values_at(tuned, mask)[name] - patch.before[name]
        torch.testing.assert_close(after - patch.before[name], 3 * moved)


@pytest.mark.parametrize(("rule", "expected"), [("sum", 13.0), ("mean", 7.0), ("first", 11.0)])
def test_where_skills_disagree_the_rule_decides(rule: str, expected: float) -> None:
    base = {"w": torch.tensor([1.0, 1.0, 1.0])}
    one = make_patch(base, {"w": torch.tensor([11.0, 5.0, 1.0])}, Mask({"w": torch.tensor([0, 1])}))
    two = make_patch(base, {"w": torch.tensor([3.0, 1.0, 9.0])}, Mask({"w": torch.tensor([0, 2])}))
    made = stack_patches([one, two], rule)
    assert made.patch.after["w"].tolist() == [expected, 5.0, 9.0]
    assert made.patch.before["w"].tolist() == [1.0, 1.0, 1.0]
    assert made.conflicts == 1
    assert set(CONFLICT_RULES) == {"sum", "mean", "first"}


def test_a_skill_stacked_alone_or_on_itself_has_no_conflict(pair) -> None:
    _, base, tuned, *_ = pair
    patch = make_patch(base, tuned, MASKS["movement"](MaskInputs(base, tuned), 9, generator()))
    for rule in ("mean", "first"):
        assert stack_patches([patch, patch], rule).conflicts == 0
    alone = stack_patches([patch])
    assert all(torch.equal(alone.patch.after[n], patch.after[n]) for n in patch.after)


def test_skills_of_different_bases_are_not_stacked() -> None:
    mask = Mask({"w": torch.tensor([0])})
    made = [
        make_patch({"w": torch.tensor([b])}, {"w": torch.tensor([5.0])}, mask) for b in (0.0, 1.0)
    ]
    with pytest.raises(Mismatch, match="different bases"):
        stack_patches(made)


def test_a_patch_of_another_architecture_is_refused(pair) -> None:
    _, base, *_ = pair
    mask = Mask({"0.weight": torch.tensor([1])})
    need_matching_shapes(base, mask, {"0.weight": (12, 6)})
    with pytest.raises(Mismatch, match=r"\(12, 6\).*\(6, 12\)"):
        need_matching_shapes(base, mask, {"0.weight": (6, 12)})
    with pytest.raises(Mismatch, match="no weight 'x'"):
        need_matching_shapes(base, Mask({"x": torch.tensor([1])}), {"x": (2,)})


def test_the_smallest_size_that_keeps_enough_is_found() -> None:
    asked = []
    found = find_smallest_size(100_000, lambda n: asked.append(n) or min(1.0, n / 2000), 0.95)
    assert found.reached
    assert 1900 <= found.size <= 1.06 * 1900
    assert len(asked) == len(set(asked)) < 25
    assert find_smallest_size(10, lambda n: 1.0, 0.9).size == 1
    never = find_smallest_size(50, lambda n: 0.2, 0.9)
    assert (never.size, never.reached) == (50, False)


def test_relative_gain_is_0_at_the_base_and_1_at_the_tuned_model() -> None:
    assert relative_gain(0.5, 0.5, 0.9) == 0.0
    assert relative_gain(0.9, 0.5, 0.9) == 1.0
    assert relative_gain(0.6, 0.5, 0.5) != relative_gain(0.6, 0.5, 0.5)


@pytest.mark.parametrize("wrong", [{"lr": 0.0}, {"every": 0}, {"steps": -1}])
def test_a_plan_that_cannot_be_is_refused(wrong) -> None:
    with pytest.raises(BadSpec, match=next(iter(wrong))):
        MaskPlan(**wrong)


def test_checkpoints_with_other_names_are_refused(pair) -> None:
    module, base, tuned, *_ = pair
    with pytest.raises(Mismatch, match="tuned lacks"):
        SoftMask(dict(module.named_parameters()), base, {"0.weight": tuned["0.weight"]}, Mask({}),
                rng=generator())  # fmt: skip
    assert LearnedMask.__dataclass_fields__["mask"]
