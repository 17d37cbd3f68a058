"""Training examples: rows of tokens, the positions to predict, and the target token at each.

Next-word prediction, masked words, label words and answers to questions all have this form. The
loss of an example is the mean over its positions, as transformers computes it for that example
alone; it does not depend on the batch.
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
from cutaway.core.float64 import to_float64
from cutaway.core.textset import TextSet
from cutaway.models.hooks import forward_kwargs
from cutaway.models.lm import LM
from cutaway.models.loss import IGNORE_INDEX, mask_tokens
from cutaway.models.tokens import pad, tokenize


@dataclass(frozen=True, eq=False)
class Examples:
    """Rows of tokens, the positions to predict in each, and the target tokens."""

    rows: list[list[int]]
    positions: list[list[int]]
    targets: list[list[int]]
    words: Tensor | None = None
    """The only tokens that can be predicted, with targets as indices into them; None for all."""
    uniforms: list[NDArray[np.float64]] | None = None
    """A random number per position: targets are sampled with it from the model's distribution."""
    dropped: int = 0
    """Texts too short to predict anything."""
    truncated: int = 0
    """Texts cut to the maximum length."""

    def __len__(self) -> int:
        """The number of examples."""
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
            positions=[self.positions[i] for i in index],
            targets=[self.targets[i] for i in index],
            uniforms=None if self.uniforms is None else [self.uniforms[i] for i in index],
        )

    def with_sampled_targets(self, seed: int) -> "Examples":
        """The same positions, with targets sampled from the model instead of the text's own."""
        uniforms = [
            _row_rng(seed, row).random(len(positions))
            for row, positions in zip(self.rows, self.positions, strict=True)
        ]
        return replace(self, uniforms=uniforms)


def _row_rng(seed: int, row: Sequence[int]) -> np.random.Generator:
    """A generator that depends on the seed and the row's tokens alone, not on its place."""
    return np.random.default_rng([seed, int(digest_text(",".join(map(str, row)))[:15], 16)])


def lm_examples(
    lm: LM, texts: TextSet, *, seed: int = 0, limit: int | None = None, share: float = 0.15
) -> Examples:
    """Next words (causal models) or a share of masked words of every text that is long enough."""
    limit = min(limit or lm.context, lm.context)
    tokens = tokenize(lm, texts.texts, pairs=texts.pairs, messages=texts.messages, limit=limit)
    enough = _long_enough(lm, tokens.rows, tokens.empty)
    if not enough:
        raise BadData(
            f"{texts.name!r} has no text of two tokens or more: there is no word to predict. Give "
            "longer texts."
        )
    rows = [tokens.rows[i] for i in enough]
    if lm.kind == "causal":
        positions = [list(range(len(row) - 1)) for row in rows]
        examples = Examples(rows, positions, [row[1:] for row in rows])
    else:
        masked = [_mask_row(lm, row, seed, share) for row in rows]
        inputs, at, targets = (list(column) for column in zip(*masked, strict=True))
        examples = Examples(inputs, at, targets)
    truncated = int((tokens.truncated > 0).sum())
    return replace(examples, dropped=len(tokens.rows) - len(rows), truncated=truncated)


def _long_enough(lm: LM, rows: list[list[int]], empty: NDArray[np.bool_]) -> list[int]:
    """Rows with something to predict: two tokens, or a word between the special tokens."""
    if lm.kind == "causal":
        return [i for i, row in enumerate(rows) if len(row) >= 2 and not empty[i]]
    special = set(lm.tokenizer.all_special_ids)
    words = [sum(token not in special for token in row) for row in rows]
    return [i for i, row in enumerate(rows) if words[i] and len(row) >= 2]


def _mask_row(lm: LM, row: list[int], seed: int, share: float) -> tuple[list[int], Any, Any]:
    ids, rng = torch.tensor([row]), _row_rng(seed, row)
    every = torch.ones_like(ids, dtype=torch.bool)
    masked, labels = mask_tokens(lm, ids, every, rng=rng, share=share)
    positions = (labels[0] != IGNORE_INDEX).nonzero()[:, 0].tolist()
    return masked[0].tolist(), positions, [row[position] for position in positions]


def example_losses(lm: LM, examples: Examples, rows: Sequence[int]) -> Tensor:
    """(rows,) mean loss of each example over its positions, differentiable in the weights."""
    chosen = examples.take(rows)
    targets, mask = (x.to(lm.device) for x in pad(chosen.targets, 0))
    logits = target_logits(lm, chosen)
    if chosen.uniforms is not None:
        targets = sample_targets(logits, chosen.uniforms)
    return mean_cross_entropy(logits, targets, mask)


def mean_cross_entropy(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """(rows,) cross-entropy, averaged over the positions in the mask."""
    each = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none")
    return (each.reshape(mask.shape) * mask).sum(dim=1) / mask.sum(dim=1)


def target_logits(lm: LM, examples: Examples) -> Tensor:
    """(rows, positions, words) at the positions to predict; padded positions hold anything."""
    lm.need_head()
    ids, mask = (x.to(lm.device) for x in pad(examples.rows, lm.pad_id))
    positions, _ = pad(examples.positions, 0)
    last = lm.body(**forward_kwargs(lm, ids, mask)).last_hidden_state
    row = torch.arange(len(ids), device=lm.device)[:, None]
    logits = lm.unembed(last[row, positions.to(lm.device)])
    return logits if examples.words is None else logits[..., examples.words]


@torch.no_grad()
def sample_targets(logits: Tensor, uniforms: Sequence[NDArray[np.float64]]) -> Tensor:
    """Tokens sampled from the model's distribution by inverting it at the given numbers."""
    width = logits.shape[1]
    numbers = np.stack([np.pad(row, (0, width - len(row))) for row in uniforms])
    cumulative = to_float64(logits).softmax(dim=-1).cumsum(dim=-1)
    wanted = torch.from_numpy(numbers).to(cumulative.device)[..., None] * cumulative[..., -1:]
    found = torch.searchsorted(cumulative, wanted)[..., 0].clamp(max=logits.shape[-1] - 1)
    return found.to(logits.device)
