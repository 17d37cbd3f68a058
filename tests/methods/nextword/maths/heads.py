"""Small output heads, features and labels for the tests of nextword's maths."""

import numpy as np
import torch

from cutaway.methods.nextword.maths.readout import OutputHead

N, E, VOCAB = 240, 6, 260
HEADS = {
    "plain": {},
    "bias": {"bias": True},
    "capped": {"bias": True, "transform": lambda z: torch.tanh(z / 3) * 3},
}


def output_head(bias: bool = False, transform=None, dtype=torch.float64) -> OutputHead:
    """A random output layer."""
    rng = torch.Generator().manual_seed(1)
    phi = torch.randn(VOCAB, E, generator=rng, dtype=dtype)
    offset = torch.randn(VOCAB, generator=rng, dtype=dtype) if bias else None
    return OutputHead(phi, offset, transform)


def features(n: int = N) -> torch.Tensor:
    """Random states f."""
    return torch.randn(n, E, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def labels(f: torch.Tensor, classes: int) -> np.ndarray:
    """Classes that depend on the first column of f, with noise; all equally frequent."""
    noise = torch.randn(len(f), generator=torch.Generator().manual_seed(2), dtype=f.dtype)
    score = (f[:, 0] + 0.4 * noise).numpy()
    return np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))
