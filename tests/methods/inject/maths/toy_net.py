"""A small network with every case of weight use, and its squared gradients by a loop."""

import torch
from torch import nn
from torch.nn import functional as F

from cutaway.methods.inject.maths.loop import add_by_autograd


def zeros(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: torch.zeros_like(p) for name, p in module.named_parameters()}


class Net(nn.Module):
    """Tied embeddings, a shared layer, positions looked up once for all, a separate norm."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(11, 6), nn.Embedding(9, 6)
        self.shared, self.norm = nn.Linear(6, 6), nn.LayerNorm(6)
        self.out = nn.Linear(6, 11)
        self.out.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.words(ids) + self.places(torch.arange(ids.shape[1])[None])
        for _ in range(2):
            hidden = hidden + torch.tanh(self.shared(self.norm(hidden)))
        return self.out(hidden)


def loss(net: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    logits = net(ids)[:, :-1]
    each = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    return each.mean(dim=1)


def by_loop(net: nn.Module, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    total = zeros(net)
    for row in ids:
        add_by_autograd(net, total, lambda row=row: loss(net, row[None]))
    return total
