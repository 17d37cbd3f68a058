"""Squared gradients by plain autograd, against closed forms."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cutaway.methods.inject.maths.loop import FisherSample, add_by_autograd
from tests.methods.inject.maths.toy_net import Net, by_loop


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return Net().requires_grad_(False)


def test_the_fisher_of_a_one_parameter_logistic_is_its_closed_form() -> None:
    weight = nn.Linear(1, 1, bias=False).requires_grad_(False)
    weight.weight.fill_(0.7)
    x = torch.tensor([-2.0, -0.5, 0.0, 1.0, 3.0])
    y = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0])
    total = {"weight": torch.zeros(1, 1)}
    for one, label in zip(x, y, strict=True):
        add_by_autograd(
            weight,
            total,
            lambda one=one, label=label: F.binary_cross_entropy_with_logits(
                weight(one.reshape(1, 1))[:, 0], label[None]
            ),
        )
    closed = (((0.7 * x).sigmoid() - y) * x).square().sum()
    torch.testing.assert_close(total["weight"][0, 0], closed)


def test_the_expected_fisher_of_a_logistic_needs_no_labels() -> None:
    x, w = torch.tensor([-1.0, 0.5, 2.0]), 0.3
    p = (w * x).sigmoid()
    over_labels = p * ((p - 1) * x).square() + (1 - p) * (p * x).square()
    torch.testing.assert_close(over_labels, p * (1 - p) * x.square())


def test_a_sketch_tells_fishers_apart(net) -> None:
    ids = torch.randint(11, (2, 7), generator=torch.Generator().manual_seed(3))
    total = by_loop(net, ids)
    sketch = FisherSample(total)
    for name, value in total.items():
        sketch.add(name, value.sqrt())
    assert max(sketch.differences(sketch.take(total)).values()) < 1e-5
    total["shared.weight"] *= 1.01
    differences = sketch.differences(sketch.take(total))
    assert differences.pop("shared.weight") == pytest.approx(0.01, rel=0.1)
    assert max(differences.values()) < 1e-5
