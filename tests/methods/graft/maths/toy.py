"""Toy networks for the maths of graft."""

import torch
from torch import nn

from cutaway.methods.graft.maths.select import Mask


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def net(seed: int = 0, wide: int = 12, dtype: torch.dtype = torch.float32) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, wide), nn.Tanh(), nn.Linear(wide, 3)).to(dtype)


def copies(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in module.named_parameters()}


def loss_of(module, x, y):
    return lambda: nn.functional.cross_entropy(module(x), y)


def every(base, share: float) -> Mask:
    """All places, or none."""
    return Mask({n: torch.arange(v.numel()) for n, v in base.items()} if share else {})
