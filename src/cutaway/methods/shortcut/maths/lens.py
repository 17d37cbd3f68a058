"""The prediction of a layer, compared with the full model's.

The vocabulary is large, so logits exist for one layer and a few rows at a time; only a few numbers
per row are kept. Every sum over the vocabulary is computed in float64: in float32, a KL divergence
of 262,144 tokens is wrong by up to 5e-4 nats, and the surprisal by 2e-5.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

LogitsFn = Callable[[Tensor], Tensor]
"""From hidden states of the last layer to logits: the final norm and the unembedding."""

PRECISION_KS = (1, 5, 10)
"""The k of precision@k."""

# Logits processed together: their float64 copies stay in the processor's cache.
CACHE_LOGITS = 1 << 18


@dataclass(frozen=True)
class FinalDistribution:
    """The full model's distribution for a few rows, with which every layer is compared."""

    logits: Float[Tensor, "n vocab"]
    probs: Float64[Tensor, "n vocab"]
    log_total: Float64[Tensor, " n"]
    """Log of the sum of the exponentiated logits."""
    negative_entropy: Float64[Tensor, " n"]
    top: Int[Tensor, "n k"]

    def rows(self, part: slice) -> "FinalDistribution":
        """The distributions of some of the rows."""
        tensors = (self.logits, self.probs, self.log_total, self.negative_entropy, self.top)
        return FinalDistribution(*(tensor[part] for tensor in tensors))

    def surprisal(self, tokens: Int[Tensor, " n"]) -> Float64[Tensor, " n"]:
        """-ln of the probability of one token per row."""
        return self.log_total - _logit_of(self.logits, tokens)


@dataclass(frozen=True)
class LayerPredictions:
    """The prediction of one layer for each row, compared with the full model's."""

    guess: Int[Tensor, " n"]
    """The layer's most likely token."""
    rank: Int[Tensor, " n"]
    """The rank of that token in the full model, from 0; k where it is not in the top k."""
    surprisal: Float64[Tensor, " n"]
    """-ln of the full model's probability of the guess."""
    kl: Float64[Tensor, " n"]
    """Kullback-Leibler divergence from the full distribution to the layer's, in nats."""
    entropy: Float64[Tensor, " n"]
    """Entropy of the layer's distribution, in nats."""
    confidence: Float64[Tensor, " n"]
    """The layer's highest probability."""
    gap: Float64[Tensor, " n"]
    """The highest minus the second highest probability."""
    loss: Float64[Tensor, " n"]
    """-ln of the layer's probability of the true next token; NaN where it is unknown."""

    def in_top(self, k: int) -> Tensor:
        """Whether the layer's token is among the full model's k most likely ones."""
        return self.rank < k


def final_distribution(
    logits: Float[Tensor, "n vocab"], *, depth: int = max(PRECISION_KS)
) -> FinalDistribution:
    """The full model's distribution, prepared for comparisons."""
    logits = logits.detach().float()
    probs = torch.empty_like(logits, dtype=torch.float64)
    chunks: list[tuple[Tensor, Tensor, Tensor]] = []
    for part in _cached_parts(logits):
        own = _Softmax(logits[part])
        torch.div(own.weights, own.total[:, None], out=probs[part])
        # `topk` orders ties arbitrarily; the first must be `argmax`, which generation uses.
        first = logits[part].scatter(1, own.guess[:, None], torch.inf)
        top = first.topk(min(depth, logits.shape[1]), dim=-1).indices
        chunks.append((own.log_total, own.mean_log_prob(probs[part]), top))
    return FinalDistribution(logits, probs, *map(torch.cat, zip(*chunks, strict=True)))


def layer_predictions(
    logits: Float[Tensor, "n vocab"],
    full: FinalDistribution,
    next_token: Int[Tensor, " n"] | None = None,
) -> LayerPredictions:
    """One layer's predictions, from its logits."""
    logits = logits.detach().float()
    parts = _cached_parts(logits)
    following = [None if next_token is None else next_token[part] for part in parts]
    return concat_predictions(
        [
            _part_predictions(logits[part], full.rows(part), token)
            for part, token in zip(parts, following, strict=True)
        ]
    )


def _cached_parts(logits: Tensor) -> list[slice]:
    """A few rows at a time, so that intermediate results stay in the processor's cache.

    The same parts for the full model and for a layer: equal logits then have equal sums, and a KL
    divergence of exactly 0.
    """
    count, vocab = logits.shape
    size = max(1, CACHE_LOGITS // vocab)
    return [slice(i, i + size) for i in range(0, count, size)]


class _Softmax:
    """Logits of a few rows relative to their largest, exponentiated, and summed."""

    def __init__(self, logits: Tensor) -> None:
        # NumPy's argmax is five times as fast as torch's, which took most of the time here.
        self.guess = torch.from_numpy(logits.numpy().argmax(axis=1))
        self.peak = _logit_of(logits, self.guess)
        self.shifted = logits.double().sub_(self.peak[:, None])
        self.weights = self.shifted.exp()
        self.total = self.weights.sum(dim=-1)
        self.log_total = self.peak + self.total.log()

    def mean_log_prob(self, probs: Tensor) -> Tensor:
        """The mean of this distribution's log-probabilities under another distribution."""
        return torch.linalg.vecdot(probs, self.shifted) - self.total.log()


def _part_predictions(
    logits: Tensor, full: FinalDistribution, next_token: Tensor | None
) -> LayerPredictions:
    own = _Softmax(logits)
    entropy = own.total.log() - torch.linalg.vecdot(own.weights, own.shifted) / own.total
    second = own.weights.scatter_(1, own.guess[:, None], -1.0).amax(dim=-1)
    match = (full.top == own.guess[:, None]).to(torch.int8)
    missed = ~match.any(dim=-1)
    return LayerPredictions(
        guess=own.guess,
        rank=match.argmax(dim=-1).masked_fill(missed, full.top.shape[1]),
        surprisal=full.surprisal(own.guess),
        kl=(full.negative_entropy - own.mean_log_prob(full.probs)).clamp(min=0),
        entropy=entropy.clamp(min=0),
        confidence=1 / own.total,
        gap=(1 - second) / own.total,
        loss=_loss(logits, own.log_total, next_token),
    )


def _logit_of(logits: Tensor, tokens: Tensor) -> Tensor:
    """The logit of one token per row."""
    return logits.gather(1, tokens[:, None])[:, 0].double()


def _loss(logits: Tensor, log_total: Tensor, next_token: Tensor | None) -> Tensor:
    if next_token is None:
        return torch.full_like(log_total, torch.nan)
    chosen = _logit_of(logits, next_token.clamp(min=0))
    return torch.where(next_token >= 0, log_total - chosen, torch.nan)


def concat_predictions(parts: list[LayerPredictions]) -> LayerPredictions:
    """The predictions of several chunks as one."""
    names = [field.name for field in fields(LayerPredictions)]
    return LayerPredictions(
        **{name: torch.cat([getattr(part, name) for part in parts]) for name in names}
    )
