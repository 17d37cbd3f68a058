"""A toy network before and after training."""

import pytest
import torch

from tests.methods.graft.maths.toy import copies, generator, net


@pytest.fixture
def pair():
    """A live module, its weights as base, other weights as tuned, inputs and classes."""
    module = net(0)
    base = copies(module)
    rng = generator(1)
    tuned = {n: v + 0.1 * torch.randn(v.shape, generator=rng) for n, v in base.items()}
    x, y = torch.randn(32, 6, generator=rng), torch.randint(3, (32,), generator=rng)
    return module, base, tuned, x, y
