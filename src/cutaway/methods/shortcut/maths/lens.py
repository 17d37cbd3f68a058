"""The prediction of a layer, compared with the full model's.

The vocabulary is large, so logits exist for one layer and a few rows at a time; only a few numbers
per row are kept.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int
from torch import Tensor

LogitsFn = Callable[[Tensor], Tensor]
"""From hidden states of the last layer to logits: the final norm and the unembedding."""

PRECISION_KS = (1, 5, 10)
"""The k of precision@k."""

CACHE_ROWS = 16


@dataclass(frozen=True)
class FinalDistribution:
    """The full model's distribution for a few rows, with which every layer is compared."""

    log_probs: Float[Tensor, "n vocab"]
    probs: Float[Tensor, "n vocab"]
    top: Int[Tensor, "n k"]
    negative_entropy: Float[Tensor, " n"]

    def rows(self, part: slice) -> "FinalDistribution":
        """The distributions of some of the rows."""
        tensors = (self.log_probs, self.probs, self.top, self.negative_entropy)
        return FinalDistribution(*(tensor[part] for tensor in tensors))


@dataclass(frozen=True)
class LayerPredictions:
    """The prediction of one layer for each row, compared with the full model's."""

    guess: Int[Tensor, " n"]
    """The layer's most likely token."""
    rank: Int[Tensor, " n"]
    """The rank of that token in the full model, from 0; k where it is not in the top k."""
    surprisal: Float[Tensor, " n"]
    """-ln of the full model's probability of the guess."""
    kl: Float[Tensor, " n"]
    """Kullback-Leibler divergence from the full distribution to the layer's, in nats."""
    entropy: Float[Tensor, " n"]
    """Entropy of the layer's distribution, in nats."""
    confidence: Float[Tensor, " n"]
    """The layer's highest probability."""
    gap: Float[Tensor, " n"]
    """The highest minus the second highest probability."""
    loss: Float[Tensor, " n"]
    """-ln of the layer's probability of the true next token; NaN where it is unknown."""

    def in_top(self, k: int) -> Tensor:
        """Whether the layer's token is among the full model's k most likely ones."""
        return self.rank < k


def final_distribution(
    logits: Float[Tensor, "n vocab"], *, depth: int = max(PRECISION_KS)
) -> FinalDistribution:
    """The full model's distribution, prepared for comparisons."""
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    probs = log_probs.exp()
    # `topk` orders ties arbitrarily; the first must be `argmax`, which generation uses.
    best = logits.argmax(dim=-1, keepdim=True)
    top = log_probs.scatter(1, best, 1.0).topk(min(depth, logits.shape[-1]), dim=-1).indices
    return FinalDistribution(log_probs, probs, top, (probs * log_probs).sum(dim=-1))


def layer_predictions(
    logits: Float[Tensor, "n vocab"],
    full: FinalDistribution,
    next_token: Int[Tensor, " n"] | None = None,
) -> LayerPredictions:
    """One layer's predictions, from its logits.

    A few rows at a time, so that intermediate results stay in the processor's cache.
    """
    parts = [slice(i, i + CACHE_ROWS) for i in range(0, len(logits), CACHE_ROWS)]
    following = [None if next_token is None else next_token[part] for part in parts]
    return concat_predictions(
        [
            _chunk_predictions(logits[part].float(), full.rows(part), token)
            for part, token in zip(parts, following, strict=True)
        ]
    )


def _chunk_predictions(
    logits: Tensor, full: FinalDistribution, next_token: Tensor | None
) -> LayerPredictions:
    peak, guess = logits.max(dim=-1)
    weights = (logits - peak[:, None]).exp_()
    total = weights.sum(dim=-1)
    log_total = peak + total.log()
    entropy = (log_total - _dot(weights, logits) / total).clamp(min=0)
    second = weights.scatter_(1, guess[:, None], -1.0).amax(dim=-1)
    match = (full.top == guess[:, None]).to(torch.int8)
    missed = ~match.any(dim=-1)
    return LayerPredictions(
        guess=guess,
        rank=match.argmax(dim=-1).masked_fill(missed, full.top.shape[1]),
        surprisal=-full.log_probs.gather(1, guess[:, None])[:, 0],
        kl=(full.negative_entropy - _dot(full.probs, logits) + log_total).clamp(min=0),
        entropy=entropy,
        confidence=1 / total,
        gap=(1 - second) / total,
        loss=_loss(logits, log_total, next_token),
    )


def _dot(one: Tensor, other: Tensor) -> Tensor:
    """Row-wise dot products, without materialising the products."""
    return torch.linalg.vecdot(one, other)


def _loss(logits: Tensor, log_total: Tensor, next_token: Tensor | None) -> Tensor:
    if next_token is None:
        return torch.full_like(log_total, torch.nan)
    known = next_token >= 0
    chosen = logits.gather(1, next_token.clamp(min=0)[:, None])[:, 0]
    return torch.where(known, log_total - chosen, torch.nan)


def concat_predictions(parts: list[LayerPredictions]) -> LayerPredictions:
    """The predictions of several chunks as one."""
    names = [field.name for field in fields(LayerPredictions)]
    return LayerPredictions(
        **{name: torch.cat([getattr(part, name) for part in parts]) for name in names}
    )
