"""Texts become examples: rows of tokens, the places where the model is asked, what is right there.

One form for all that is learned here: next words, hidden words, a task's label words, the answers
of arithmetic. The loss of an example is the mean over its places, as transformers has it for that
example alone, and doesn't depend on the batch it is in.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from cutaway.core.digest import digest_text
from cutaway.core.errors import BadData
from cutaway.core.textset import TextSet
from cutaway.models.lm import LM
from cutaway.models.loss import IGNORE_INDEX, mask_tokens
from cutaway.models.read import forward_kwargs
from cutaway.models.tokens import pad, tokenize


@dataclass(frozen=True, eq=False)
class Examples:
    """Rows of tokens, the places asked in each, and the right tokens there."""

    rows: list[list[int]]
    places: list[list[int]]
    targets: list[list[int]]
    words: Tensor | None = None
    """Only these tokens can be answers, and targets count in this list; None for all tokens."""
    draws: list[NDArray[np.float64]] | None = None
    """Random numbers per place: answers are drawn with them from the model's own distribution."""
    left_out: int = 0
    """Texts too short to ask anything."""
    cut: int = 0
    """Texts cut to fit."""

    def __len__(self) -> int:
        """How many examples."""
        return len(self.rows)

    @property
    def lengths(self) -> list[int]:
        """Tokens per row."""
        return [len(row) for row in self.rows]

    def take(self, rows: Sequence[int] | NDArray[np.integer]) -> "Examples":
        """The chosen examples."""
        index = [int(i) for i in rows]
        return replace(
            self,
            rows=[self.rows[i] for i in index],
            places=[self.places[i] for i in index],
            targets=[self.targets[i] for i in index],
            draws=None if self.draws is None else [self.draws[i] for i in index],
        )

    def with_draws(self, seed: int) -> "Examples":
        """The same places, answered by the model itself instead of by the text."""
        draws = [
            _row_rng(seed, row_digest(row)).random(len(places))
            for row, places in zip(self.rows, self.places, strict=True)
        ]
        return replace(self, draws=draws)


def row_digest(row: Sequence[int]) -> str:
    """A row's identity: what is random in an example depends on it and the seed alone."""
    return digest_text(",".join(map(str, row)))


def _row_rng(seed: int, identity: str) -> np.random.Generator:
    return np.random.default_rng([seed, int(identity[:15], 16)])


def lm_examples(
    lm: LM, texts: TextSet, *, seed: int = 0, limit: int | None = None, share: float = 0.15
) -> Examples:
    """Next words (causal) or a share of hidden words (masked) of every text long enough."""
    limit = min(limit or lm.context, lm.context)
    got = tokenize(lm, texts.texts, pairs=texts.pairs, limit=limit)
    enough = _long_enough(lm, got.rows, got.empty)
    if not enough:
        raise BadData(
            f"{texts.name!r} has no text of two tokens or more: there is no word to predict. Give "
            "longer texts."
        )
    rows = [got.rows[i] for i in enough]
    if lm.kind == "causal":
        places = [list(range(len(row) - 1)) for row in rows]
        made = Examples(rows, places, [row[1:] for row in rows])
    else:
        hidden = [_mask_row(lm, row, seed, share) for row in rows]
        seen, where, right = zip(*hidden, strict=True)
        made = Examples(list(seen), list(where), list(right))
    return replace(made, left_out=len(got.rows) - len(rows), cut=int((got.truncated > 0).sum()))


def _long_enough(lm: LM, rows: list[list[int]], empty: NDArray[np.bool_]) -> list[int]:
    """Rows with something to predict: two tokens, or a word between the special ones."""
    if lm.kind == "causal":
        return [i for i, row in enumerate(rows) if len(row) >= 2 and not empty[i]]
    special = set(lm.tokenizer.all_special_ids)
    own = [sum(token not in special for token in row) for row in rows]
    return [i for i, row in enumerate(rows) if own[i] and len(row) >= 2]


def _mask_row(lm: LM, row: list[int], seed: int, share: float) -> tuple[list[int], Any, Any]:
    ids = torch.tensor([row])
    rng = _row_rng(seed, row_digest(row))
    seen, labels = mask_tokens(
        lm, ids, torch.ones_like(ids, dtype=torch.bool), rng=rng, share=share
    )
    places = (labels[0] != IGNORE_INDEX).nonzero()[:, 0].tolist()
    return seen[0].tolist(), places, [row[place] for place in places]


def example_losses(lm: LM, examples: Examples, rows: Sequence[int]) -> Tensor:
    """(rows,) mean loss of each example over its places, differentiable in the weights."""
    chosen = examples.take(rows)
    targets, asked = (x.to(lm.device) for x in pad(chosen.targets, 0))
    said = target_logits(lm, chosen)
    if chosen.draws is not None:
        targets = sample_targets(said, chosen.draws)
    each = F.cross_entropy(said.flatten(0, 1).float(), targets.flatten(), reduction="none")
    return (each.reshape(asked.shape) * asked).sum(dim=1) / asked.sum(dim=1)


def target_logits(lm: LM, examples: Examples) -> Tensor:
    """(rows, places, words) at the places asked; those that only fill up are anything."""
    lm.need_head()
    ids, mask = (x.to(lm.device) for x in pad(examples.rows, lm.pad_id))
    places, _ = pad(examples.places, 0)
    last = lm.body(**forward_kwargs(lm, ids, mask)).last_hidden_state
    at = torch.arange(len(ids), device=lm.device)[:, None]
    said = lm.unembed(last[at, places.to(lm.device)])
    return said if examples.words is None else said[..., examples.words]


@torch.no_grad()
def sample_targets(said: Tensor, draws: Sequence[NDArray[np.float64]]) -> Tensor:
    """Tokens drawn from the model's distribution, each with its own random number."""
    width = said.shape[1]
    numbers = np.stack([np.pad(draw, (0, width - len(draw))) for draw in draws])
    shares = said.double().softmax(dim=-1).cumsum(dim=-1)
    wanted = torch.from_numpy(numbers).to(said.device)[..., None] * shares[..., -1:]
    return torch.searchsorted(shares, wanted)[..., 0].clamp(max=said.shape[-1] - 1)
