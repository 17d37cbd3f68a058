"""The most likely tokens of a prediction."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway.methods.shortcut.maths.lens import LayerPredictions

TOP_TOKENS = 10
"""Tokens kept per sample, as in the paper's results."""
_BLOCK = 64


def top_tokens(
    logits: Float[Tensor, "n vocab"], predicted: LayerPredictions, count: int = TOP_TOKENS
) -> tuple[Int[Tensor, "n count"], Float[Tensor, "n count"]]:
    """Ids and probabilities of the most likely tokens; the first one is the prediction."""
    best = predicted.guess[:, None]
    ids = _candidates(logits, best, count)
    # Of equal logits, `argmax` decides which is first.
    ranked = logits.gather(1, ids).masked_fill(ids == best, torch.inf)
    ids = ids.gather(1, ranked.topk(min(count, ids.shape[1]), dim=-1).indices)
    values = logits.gather(1, ids)
    probs = predicted.confidence[:, None] * (values - values[:, :1]).exp()
    return ids, probs.float()


def _candidates(logits: Tensor, best: Tensor, count: int) -> Tensor:
    """Ids that include the `count` most likely tokens: those of the blocks with the highest peaks.

    At most `count` blocks hold them, and maxima of blocks are found faster than a top k of a large
    vocabulary.
    """
    rows, vocab = logits.shape
    blocks = vocab // _BLOCK
    if blocks <= count:
        return torch.arange(vocab).expand(rows, vocab)
    whole = blocks * _BLOCK
    peaks = logits[:, :whole].unflatten(1, (blocks, _BLOCK)).amax(dim=-1)
    peaks.scatter_(1, (best // _BLOCK).clamp(max=blocks - 1), torch.inf)
    chosen = peaks.topk(count, dim=-1).indices
    inside = (chosen[:, :, None] * _BLOCK + torch.arange(_BLOCK)).flatten(1)
    rest = torch.arange(whole, vocab).expand(rows, vocab - whole)
    return torch.cat([inside, rest], dim=1)
