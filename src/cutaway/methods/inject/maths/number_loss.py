"""A regression loss for numbers written in tokens: the number that a distribution encodes.

At each position of an answer the model gives a distribution over tokens. Restricted to the number
tokens with as many digits as the correct one there, it has an expected value; scaled by the
position's power of ten and summed, this is the number that the model expects. It is compared with
the correct number on a log scale, as log-RMSE does. Everything is differentiable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

MAX_DIGITS = 4
"""Tokens with more digits are not treated as numbers."""


@dataclass(frozen=True)
class NumberTokens:
    """The tokens that are numbers and their values, by number of digits."""

    tokens: dict[int, Int[Tensor, " n"]]
    values: dict[int, Float[Tensor, " n"]]
    digits: dict[int, int]
    """The number of digits of each token; only number tokens are in it."""


def find_number_tokens(words: Mapping[int, str]) -> NumberTokens:
    """The number tokens among {token: its text}."""
    numbers = {
        t: w for t, w in words.items() if w.isascii() and w.isdigit() and len(w) <= MAX_DIGITS
    }
    sizes = sorted({len(word) for word in numbers.values()})
    tokens = {n: sorted(t for t, w in numbers.items() if len(w) == n) for n in sizes}
    return NumberTokens(
        {n: torch.tensor(ids) for n, ids in tokens.items()},
        {n: torch.tensor([float(numbers[t]) for t in ids]) for n, ids in tokens.items()},
        {token: len(word) for token, word in numbers.items()},
    )


@dataclass(frozen=True)
class DigitPosition:
    """One position of a correct answer: its digits (0 for no number), and the digits after it."""

    digits: int
    after: int


def digit_positions(targets: Sequence[int], tokens: NumberTokens) -> list[DigitPosition]:
    """The positions of one correct answer."""
    sizes = [tokens.digits.get(token, 0) for token in targets]
    return [DigitPosition(size, sum(sizes[i + 1 :])) for i, size in enumerate(sizes)]


def expected_numbers(
    logits: Float[Tensor, "batch places vocab"],
    answers: Sequence[Sequence[DigitPosition]],
    tokens: NumberTokens,
) -> Float[Tensor, " batch"]:
    """The expected number of each row of distributions."""
    total = logits.new_zeros(len(logits), dtype=torch.float32)
    for size, ids in tokens.tokens.items():
        at = [
            (i, j, position.after)
            for i, positions in enumerate(answers)
            for j, position in enumerate(positions)
            if position.digits == size
        ]
        if not at:
            continue
        rows, places, after = (torch.tensor(x, device=logits.device) for x in zip(*at, strict=True))
        share = logits[rows, places][:, ids.to(logits.device)].float().softmax(dim=-1)
        expected = share @ tokens.values[size].to(logits.device)
        total = total.index_add(0, rows, expected * 10.0**after)
    return total


def squared_log_error(
    numbers: Float[Tensor, " batch"], truth: Float[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """(ln(1 + number) - ln(1 + truth))^2."""
    return (torch.log1p(numbers) - torch.log1p(truth)).square()
