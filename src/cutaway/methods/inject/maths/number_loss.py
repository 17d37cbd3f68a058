"""A regression term for numbers written in tokens: what number does a distribution mean?

At each place of an answer the model spreads its belief over tokens. Among the tokens that are
numbers of as many digits as the right one there, the expected value is taken; times the place's
power of ten, added up, that is the number the model means. It is compared with the right one on a
log scale, as log-RMSE does, and all of it is differentiable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

MAX_DIGITS = 4
"""Tokens of more digits than this are not taken for numbers."""


@dataclass(frozen=True)
class NumberTokens:
    """The tokens that are numbers, by how many digits they have, and their values."""

    tokens: dict[int, Int[Tensor, " n"]]
    values: dict[int, Float[Tensor, " n"]]
    of: dict[int, int]
    """token -> how many digits; other tokens aren't here."""


def find_number_tokens(words: Mapping[int, str]) -> NumberTokens:
    """From {token: its bare text}."""
    known = {t: w for t, w in words.items() if w.isascii() and w.isdigit() and len(w) <= MAX_DIGITS}
    sizes = sorted({len(word) for word in known.values()})
    tokens = {n: sorted(t for t, w in known.items() if len(w) == n) for n in sizes}
    return NumberTokens(
        {n: torch.tensor(found) for n, found in tokens.items()},
        {n: torch.tensor([float(known[t]) for t in found]) for n, found in tokens.items()},
        {token: len(word) for token, word in known.items()},
    )


@dataclass(frozen=True)
class DigitPosition:
    """What stands at one place of an answer: digits there (0: no number), digits behind it."""

    digits: int
    behind: int


def digit_positions(targets: Sequence[int], digits: NumberTokens) -> list[DigitPosition]:
    """The places of one right answer."""
    sizes = [digits.of.get(token, 0) for token in targets]
    return [DigitPosition(size, sum(sizes[i + 1 :])) for i, size in enumerate(sizes)]


def expected_numbers(
    said: Float[Tensor, "batch places vocab"],
    answers: Sequence[Sequence[DigitPosition]],
    digits: NumberTokens,
) -> Float[Tensor, " batch"]:
    """The number each row of distributions means."""
    total = said.new_zeros(len(said), dtype=torch.float32)
    for size, tokens in digits.tokens.items():
        where = [
            (i, j, place.behind)
            for i, places in enumerate(answers)
            for j, place in enumerate(places)
            if place.digits == size
        ]
        if not where:
            continue
        rows, at, behind = (torch.tensor(x, device=said.device) for x in zip(*where, strict=True))
        chance = said[rows, at][:, tokens.to(said.device)].float().softmax(dim=-1)
        expected = chance @ digits.values[size].to(said.device)
        total = total.index_add(0, rows, expected * 10.0**behind)
    return total


def squared_log_error(
    meant: Float[Tensor, " batch"], right: Float[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """(ln(1 + meant) - ln(1 + right))^2."""
    return (torch.log1p(meant) - torch.log1p(right)).square()
