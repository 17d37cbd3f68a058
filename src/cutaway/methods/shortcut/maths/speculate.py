"""Which drafted tokens may stay, so that the output is the full model's and nobody else's."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class DraftAcceptance:
    """How many drafted tokens stay, and the token that follows them."""

    kept: int
    following: int


def accept_greedy(draft: Int[Tensor, " k"], logits: Float[Tensor, "k1 vocab"]) -> DraftAcceptance:
    """Keep the longest prefix that the full model would have written; its next token follows.

    `logits` are the full model's after the prompt and after each drafted token: one row more
    than there are drafted tokens.
    """
    own = logits.argmax(dim=-1)
    agree = own[: len(draft)] == draft
    kept = int(agree.to(torch.int8).cumprod(dim=0).sum())
    return DraftAcceptance(kept, int(own[kept]))


def accept_sampled(
    draft: Int[Tensor, " k"],
    drafted: Float[Tensor, "k vocab"],
    full: Float[Tensor, "k1 vocab"],
    *,
    rng: torch.Generator,
) -> DraftAcceptance:
    """Keep each drafted token with probability min(1, p / q); then draw from what p has over q.

    `drafted` and `full` are probabilities. The tokens then have exactly the full model's
    distribution, whatever the draft (Leviathan et al. 2023, Chen et al. 2023).
    """
    for place, token in enumerate(draft.tolist()):
        p, q = full[place, token], drafted[place, token]
        if torch.rand((), generator=rng, dtype=torch.float64) * q >= p:
            return DraftAcceptance(
                place, sample_token(_residual_distribution(full[place], drafted[place]), rng=rng)
            )
    return DraftAcceptance(len(draft), sample_token(full[len(draft)], rng=rng))


def _residual_distribution(full: Tensor, drafted: Tensor) -> Tensor:
    """What is left of the full distribution after the draft's share is taken out."""
    left = (full - drafted).clamp(min=0)
    total = left.sum()
    # Equal distributions leave nothing, up to rounding: then the full one itself is right.
    return left / total if total > 0 else full


def sample_token(probs: Float[Tensor, " vocab"], *, rng: torch.Generator) -> int:
    """One token drawn from the distribution."""
    return int(torch.multinomial(probs, 1, generator=rng))
