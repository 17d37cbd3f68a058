"""The tuned lens (Belrose et al. 2023): an affine map trained on the final distribution.

Least squares minimises the error of the final hidden state; this minimises the KL divergence from
the final distribution. Training starts from a fitted map, and its result is used only where it is
better on rows that it was not trained on.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.methods.shortcut.maths.fit import Shortcut
from cutaway.methods.shortcut.maths.lens import LogitsFn


def train_tuned_map(
    start: Shortcut,
    hidden: Float[Tensor, "n source"],
    final: Float[Tensor, "n d"],
    head: LogitsFn,
    *,
    rng: torch.Generator,
    steps: int = 200,
    batch: int = 64,
    rate: float = 3e-4,
) -> Shortcut:
    """The affine map with the least KL divergence from the full model's distribution.

    A tenth of the rows is held out; `start` is returned unless the trained map is better there.
    Training uses scaled coordinates, so that outlier coordinates learn like the others.
    """
    order = torch.randperm(len(hidden), generator=rng)
    held_out, rows = order[: min(512, len(order) // 10)], order[len(order) // 10 :]
    trained = _train(start, hidden[rows], final[rows], head, rng, steps, batch, rate)
    improves = _held_out_kl(trained, hidden[held_out], final[held_out], head) < _held_out_kl(
        start, hidden[held_out], final[held_out], head
    )
    return trained if improves or not len(held_out) else start


def _train(
    start: Shortcut,
    hidden: Tensor,
    final: Tensor,
    head: LogitsFn,
    rng: torch.Generator,
    steps: int,
    batch: int,
    rate: float,
) -> Shortcut:
    scale = hidden.float().square().mean(dim=0).sqrt().clamp(min=1e-6)
    matrix = _dense_matrix(start, hidden.shape[1]).to(hidden.device).float()
    step = torch.zeros_like(matrix, requires_grad=True)
    bias = torch.zeros(matrix.shape[1], device=matrix.device)
    bias = (bias if start.bias is None else start.bias.float().clone()).requires_grad_()
    optimizer = torch.optim.Adam([step, bias], lr=rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, steps)
    for _ in range(steps):
        rows = torch.randint(len(hidden), (min(batch, len(hidden)),), generator=rng)
        x = hidden[rows].float()
        with torch.no_grad():
            target = torch.log_softmax(head(final[rows]).float(), dim=-1)
        with torch.enable_grad():
            loss = mean_kl(target, head(x @ matrix + (x / scale) @ step + bias).float())
            optimizer.zero_grad()
            loss.backward(inputs=[step, bias])
        optimizer.step()
        schedule.step()
    tuned = matrix + step.detach() / scale[:, None]
    return Shortcut((tuned,), bias.detach(), start.ridge, start.note)


@torch.no_grad()
def _held_out_kl(jump: Shortcut, hidden: Tensor, final: Tensor, head: LogitsFn) -> float:
    if not len(hidden):
        return 0.0
    target = torch.log_softmax(head(final).float(), dim=-1)
    return float(mean_kl(target, head(jump(hidden.float())).float()))


def mean_kl(
    target: Float[Tensor, "n vocab"], logits: Float[Tensor, "n vocab"]
) -> Float[Tensor, ""]:
    """Mean KL divergence from the target log-probabilities to those of the logits."""
    predicted = torch.log_softmax(logits, dim=-1)
    return torch.nn.functional.kl_div(predicted, target, reduction="batchmean", log_target=True)


def _dense_matrix(start: Shortcut, width: int) -> Tensor:
    return start.matrix if start.factors else torch.eye(width)
