"""Schedules equal those of transformers; weight decay and clipping do what they say."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn
from transformers import get_scheduler

from cutaway.core.errors import BadSpec, UnknownName
from cutaway.training.loop import train
from cutaway.training.plan import (
    OPTIMIZERS,
    SCHEDULES,
    TrainingPlan,
    make_optimizer,
    uses_weight_decay,
)

PLAN = TrainingPlan(steps=12, lr=0.05, every=4, seed=3)


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_are_those_of_transformers(name) -> None:
    plan = replace(PLAN, schedule=name, warmup=3)
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=plan.lr)
    known = {"constant": "constant_with_warmup"}.get(name, name)
    theirs = get_scheduler(known, optimizer, num_warmup_steps=3, num_training_steps=plan.steps)
    for step in range(plan.steps):
        ours = plan.lr * SCHEDULES[name](step, plan)
        assert ours == pytest.approx(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_weight_decay_spares_biases_and_norms(tmp_path, optimizer) -> None:
    names = {
        "weight": (2, 2),
        "norm.weight": (2,),
        "bias": (2,),
        "ln_1.weight": (2, 2),
        "q_norm.weight": (2, 2),
    }
    params = {name: nn.Parameter(torch.ones(shape)) for name, shape in names.items()}
    plan = TrainingPlan(steps=1, lr=0.1, optimizer=optimizer, weight_decay=0.5)
    train(
        params,
        lambda step: {"loss": 0.0 * sum(p.sum() for p in params.values())},
        plan,
        folder=tmp_path,
        identity={},
    )
    moved = {name for name, p in params.items() if not torch.equal(p, torch.ones_like(p))}
    assert moved == {"weight"}
    assert {name for name, p in params.items() if uses_weight_decay(name, p)} == {"weight"}


def test_the_gradient_is_clipped_over_all_parameters(tmp_path) -> None:
    params = {name: nn.Parameter(torch.zeros(1)) for name in ("a", "b")}

    def loss(step: int) -> dict[str, torch.Tensor]:
        return {"loss": 30 * params["a"].sum() + 40 * params["b"].sum()}

    plan = TrainingPlan(steps=1, lr=1.0, optimizer="sgd", clip=2.0)
    train(params, loss, plan, folder=tmp_path / "clipped", identity={})
    assert [p.item() for p in params.values()] == pytest.approx([-1.2, -1.6])
    for parameter in params.values():
        nn.init.zeros_(parameter)
    train(params, loss, replace(plan, clip=None), folder=tmp_path / "free", identity={})
    assert [p.item() for p in params.values()] == pytest.approx([-30, -40])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules_rise_during_the_warmup_and_never_exceed_the_learning_rate(schedule) -> None:
    plan = replace(PLAN, schedule=schedule, warmup=5)
    factors = [SCHEDULES[schedule](step, plan) for step in range(plan.steps)]
    assert factors[:5] == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
    assert factors[5] == 1.0
    assert all(later <= earlier for earlier, later in pairwise(factors[5:]))


@pytest.mark.parametrize(
    ("field", "value"),
    [("steps", 0), ("every", 0), ("lr", 0.0), ("lr", float("inf")), ("clip", 0.0), ("patience", 0),
     ("warmup", -1)],
)  # fmt: skip
def test_an_invalid_plan_is_refused_by_the_name_of_the_field(field, value) -> None:
    with pytest.raises(BadSpec, match=f"{field} must be"):
        replace(PLAN, **{field: value})


def test_unknown_optimizers_and_schedules_are_refused_with_a_suggestion() -> None:
    with pytest.raises(UnknownName, match="adamw"):
        replace(PLAN, optimizer="adamww")
    with pytest.raises(UnknownName, match="cosine"):
        replace(PLAN, schedule="cosin")
    with pytest.raises(BadSpec, match="no parameter"):
        make_optimizer({}, PLAN)


def test_only_vectors_biases_and_norms_are_without_weight_decay() -> None:
    params = {"w.weight": nn.Parameter(torch.ones(2, 2)), "w.bias": nn.Parameter(torch.ones(2))}
    optimizer = make_optimizer(params, replace(PLAN, weight_decay=0.1))
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 1]
