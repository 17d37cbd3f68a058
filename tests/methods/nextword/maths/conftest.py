"""Fixtures of the tests of nextword's maths."""

import pytest
import torch

from cutaway.methods.nextword.maths import readout
from tests.methods.nextword.maths import heads


@pytest.fixture
def f() -> torch.Tensor:
    return heads.features()


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Several blocks of p, the last one shorter."""
    monkeypatch.setattr(readout, "BLOCK_ELEMENTS", 50 * heads.VOCAB)
