"""Losses of a batch of padded ids: one number per example, differentiable in the weights.

Padding never counts. `with_params` (models/swap.py) computes them with other weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from cutaway.core.errors import BadData, BadSpec
from cutaway.models.hooks import forward_kwargs
from cutaway.models.lm import LM

IGNORE_INDEX = -100
Ids = Int[Tensor, "batch seq"]
Mask = Bool[Tensor, "batch seq"]
PerRow = Float[Tensor, " batch"]


@dataclass(frozen=True)
class LinearHead:
    """A linear classifier on one token's final state."""

    weight: Float[Tensor, "cls e"]
    bias: Float[Tensor, " cls"]


def lm_loss(lm: LM, ids: Ids, mask: Mask) -> PerRow:
    """Next-token loss of each row, the mean over its predicted tokens, as transformers returns it
    for the row alone. 0 for a row of one token."""
    real = mask.bool()
    # A token is predicted from the previous one, so both have to be real.
    labels = ids.masked_fill(~real, IGNORE_INDEX)[:, 1:]
    labels = labels.masked_fill(~real[:, :-1], IGNORE_INDEX)
    return _mean_loss(_logits(lm, ids, real)[:, :-1], labels)


def mlm_loss(lm: LM, ids: Ids, mask: Mask, labels: Ids) -> PerRow:
    """Masked-token loss of each row: the mean over the positions where `labels` isn't -100."""
    return _mean_loss(_logits(lm, ids, mask.bool()), labels)


def label_word_logits(
    lm: LM, ids: Ids, mask: Mask, words: Int[Tensor, " cls"]
) -> Float[Tensor, "batch cls"]:
    """The label words' logits at the mask token (masked models) or the last token (causal)."""
    lm.need_head()
    at = answer_positions(lm, ids, mask)
    return lm.unembed(_take_position(_last_hidden(lm, ids, mask), at))[:, words]


def head_logits(
    lm: LM,
    head: LinearHead,
    ids: Ids,
    mask: Mask,
    *,
    at: Literal["first", "last", "mask"] | None = None,
) -> Float[Tensor, "batch cls"]:
    """A linear head on the final state of the first token (masked models), the last (causal models)
    or the token given by `at`."""
    at = at or ("last" if lm.kind == "causal" else "first")
    if at not in TOKEN_POSITIONS:
        raise BadSpec(f"at must be one of {', '.join(TOKEN_POSITIONS)}, got {at!r}.")
    position = TOKEN_POSITIONS[at](lm, ids, mask)
    state = _take_position(_last_hidden(lm, ids, mask), position)
    return F.linear(state, head.weight, head.bias)


def mask_tokens(
    lm: LM,
    ids: Ids,
    mask: Mask,
    *,
    rng: np.random.Generator,
    share: float = 0.15,
    style: Literal["bert", "mask"] = "bert",
) -> tuple[Ids, Ids]:
    """Inputs with a share of the ordinary tokens masked, and labels that are -100 elsewhere.

    At least one token per row is chosen. `bert`: of the chosen ones 80 % become the mask token,
    10 % a random token, 10 % stay; `mask`: all become the mask token.
    """
    if lm.tokenizer.mask_token_id is None:
        raise BadSpec(f"{lm.name!r} has no mask token: masked-token loss needs a masked model.")
    if style not in ("bert", "mask"):
        raise BadSpec(f"style must be 'bert' or 'mask', got {style!r}.")
    chosen = _choose_masked(lm, ids, mask, rng, share)
    labels = ids.masked_fill(~chosen, IGNORE_INDEX)
    fate = torch.from_numpy(rng.random(tuple(ids.shape))).to(ids.device)
    words = torch.from_numpy(rng.integers(lm.vocab, size=tuple(ids.shape))).to(ids.device)
    masked = chosen & (fate < (0.8 if style == "bert" else 1.1))
    inputs = ids.masked_fill(masked, lm.tokenizer.mask_token_id)
    return torch.where(chosen & ~masked & (fate < 0.9), words, inputs), labels


def answer_positions(lm: LM, ids: Ids, mask: Mask) -> Int[Tensor, " batch"]:
    """The position of each row's answer: the mask token (masked models) or the last (causal)."""
    return TOKEN_POSITIONS["last" if lm.kind == "causal" else "mask"](lm, ids, mask)


def _mask_position(lm: LM, ids: Ids, mask: Mask) -> Tensor:
    marks: Tensor = (ids == lm.tokenizer.mask_token_id) & mask.bool()
    if not bool(marks.any(dim=1).all()):
        row = int((~marks.any(dim=1)).nonzero()[0, 0])
        raise BadData(f"Row {row} has no mask token: the template must put one in every text.")
    return marks.long().argmax(dim=1)


TOKEN_POSITIONS: dict[str, Callable[[LM, Tensor, Tensor], Tensor]] = {
    "first": lambda lm, ids, mask: mask.long().argmax(dim=1),
    "last": lambda lm, ids, mask: mask.shape[1] - 1 - mask.long().flip(1).argmax(dim=1),
    "mask": _mask_position,
}


def _logits(lm: LM, ids: Ids, mask: Mask) -> Float[Tensor, "batch seq vocab"]:
    lm.need_head()
    return lm.unembed(_last_hidden(lm, ids, mask))


def _last_hidden(lm: LM, ids: Ids, mask: Mask) -> Float[Tensor, "batch seq e"]:
    state: Tensor = lm.body(**forward_kwargs(lm, ids, mask)).last_hidden_state
    return state


def _mean_loss(logits: Tensor, labels: Tensor) -> PerRow:
    """Mean cross-entropy of each row over its labelled positions."""
    each = F.cross_entropy(
        logits.float().transpose(1, 2), labels, ignore_index=IGNORE_INDEX, reduction="none"
    )
    return each.sum(dim=1) / (labels != IGNORE_INDEX).sum(dim=1).clamp(min=1)


def _choose_masked(lm: LM, ids: Ids, mask: Mask, rng: np.random.Generator, share: float) -> Tensor:
    """Each ordinary token with probability `share`, and at least one per row."""
    special = torch.tensor(lm.tokenizer.all_special_ids, device=ids.device)
    ordinary = mask.bool() & ~torch.isin(ids, special)
    if not bool(ordinary.any(dim=1).all()):
        row = int((~ordinary.any(dim=1)).nonzero()[0, 0])
        raise BadData(f"Row {row} has no ordinary token to mask: leave out empty texts.")
    chance = torch.from_numpy(rng.random(tuple(ids.shape))).to(ids.device)
    chance = chance.masked_fill(~ordinary, 2.0)
    return (chance < share) | (chance == chance.amin(dim=1, keepdim=True))


def _take_position(last: Float[Tensor, "batch seq e"], at: Int[Tensor, " batch"]) -> Tensor:
    return last[torch.arange(len(last), device=last.device), at]
