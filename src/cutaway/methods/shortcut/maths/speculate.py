"""Which drafted tokens to accept so that the output is exactly the full model's."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class DraftAcceptance:
    """How many drafted tokens are accepted, and the token that follows them."""

    count: int
    next_token: int


def accept_greedy(draft: Int[Tensor, " k"], logits: Float[Tensor, "k1 vocab"]) -> DraftAcceptance:
    """Accept the longest prefix that the full model would generate; its next token follows.

    `logits` are the full model's after the prompt and after each drafted token: one row more
    than there are drafted tokens.
    """
    own = logits.argmax(dim=-1)
    agree = own[: len(draft)] == draft
    count = int(agree.to(torch.int8).cumprod(dim=0).sum())
    return DraftAcceptance(count, int(own[count]))


def accept_sampled(
    draft: Int[Tensor, " k"],
    drafted: Float[Tensor, "k vocab"],
    full: Float[Tensor, "k1 vocab"],
    *,
    rng: torch.Generator,
) -> DraftAcceptance:
    """Accept each drafted token with probability min(1, p / q); then sample from max(0, p - q).

    `drafted` and `full` are probabilities. The tokens then have exactly the full model's
    distribution, whatever the draft (Leviathan et al. 2023, Chen et al. 2023).
    """
    for i, token in enumerate(draft.tolist()):
        p, q = full[i, token], drafted[i, token]
        if torch.rand((), generator=rng, dtype=torch.float64) * q >= p:
            return DraftAcceptance(
                i, sample_token(_residual_distribution(full[i], drafted[i]), rng=rng)
            )
    return DraftAcceptance(len(draft), sample_token(full[len(draft)], rng=rng))


def _residual_distribution(full: Tensor, drafted: Tensor) -> Tensor:
    """max(0, full - drafted), normalised."""
    residual = (full - drafted).clamp(min=0)
    total = residual.sum()
    # Equal distributions leave nothing, up to rounding: then the full one is correct.
    return residual / total if total > 0 else full


def sample_token(probs: Float[Tensor, " vocab"], *, rng: torch.Generator) -> int:
    """One token sampled from the distribution."""
    return int(torch.multinomial(probs, 1, generator=rng))
