"""The soft mask: the paper's steps, Adam, mirror descent, exact sizes, a planted skill."""

import pytest
import torch
from torch import nn

from cutaway.core.errors import BadSpec, Mismatch
from cutaway.methods.graft.maths.learn_mask import LearnedMask, learn_mask
from cutaway.methods.graft.maths.masks import MASKS, MaskInputs
from cutaway.methods.graft.maths.select import Mask
from cutaway.methods.graft.maths.soft_mask import (
    MaskPlan,
    SoftMask,
    gradients_enabled,
)
from tests.methods.graft.maths.toy import copies, generator, loss_of, net


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
    for name, places in start.indices.items():
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
    return s, gamma_base, dict(zip(s, grads, strict=True)), float(loss.detach())


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


def test_a_mirror_step_in_several_terms_equals_one_step_and_keeps_no_gradient(pair) -> None:
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
        params, base, tuned, start, lambda step: [loss], lambda: -float(loss().detach()), plan,
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
    assert not torch.isin(start.indices["weight"], places).any()
    loss = loss_of(module, x, y)
    accuracy = lambda: float((module(x).argmax(1) == y).float().mean())  # noqa: E731
    learned = learn_mask(
        dict(module.named_parameters()), base, tuned, start, lambda step: [loss], accuracy,
        MaskPlan(steps=60, lr=lr, optimizer=optimizer, every=1), rng=generator(),
    )  # fmt: skip
    assert torch.equal(learned.mask.indices["weight"], places)
    assert learned.score > 0.99


@pytest.mark.parametrize("wrong", [{"lr": 0.0}, {"every": 0}, {"steps": -1}])
def test_a_plan_out_of_range_is_refused(wrong) -> None:
    with pytest.raises(BadSpec, match=next(iter(wrong))):
        MaskPlan(**wrong)


def test_checkpoints_with_other_names_are_refused(pair) -> None:
    module, base, tuned, *_ = pair
    with pytest.raises(Mismatch, match="tuned lacks"):
        SoftMask(dict(module.named_parameters()), base, {"0.weight": tuned["0.weight"]}, Mask({}),
                rng=generator())  # fmt: skip
    assert LearnedMask.__dataclass_fields__["mask"]
