"""The regression loss on numbers in tokens, against a direct calculation."""

import numpy as np
import pytest
import torch

from cutaway.methods.inject.maths.number_loss import (
    MAX_DIGITS,
    DigitPosition,
    digit_positions,
    expected_numbers,
    find_number_tokens,
    squared_log_error,
)

# Ten digits, all two-digit numbers, and words.
WORDS = {i: str(i) for i in range(10)} | {10 + i: f"{i:02d}" for i in range(100)}


WORDS |= {110: "the", 111: "-", 112: "12345", 113: "²", 114: ""}


TOKENS = find_number_tokens(WORDS)


def test_only_short_ascii_numbers_are_number_tokens() -> None:
    assert set(TOKENS.tokens) == {1, 2}
    assert not {110, 111, 112, 113, 114} & set(TOKENS.digits)
    assert all(len(WORDS[token]) == n <= MAX_DIGITS for token, n in TOKENS.digits.items())
    for size, tokens in TOKENS.tokens.items():
        assert TOKENS.values[size].tolist() == [float(WORDS[t]) for t in tokens.tolist()]


def test_positions_know_their_digits_and_those_after_them() -> None:
    assert digit_positions([111, 3, 10 + 45, 110], TOKENS) == [
        DigitPosition(0, 3),
        DigitPosition(1, 2),
        DigitPosition(2, 0),
        DigitPosition(0, 0),
    ]


@pytest.mark.parametrize("answer", [[7], [4, 2], [10 + 31], [5, 10 + 6], [111, 9, 110]])
def test_a_certain_model_expects_the_number_it_writes(answer) -> None:
    logits = torch.full((1, len(answer), len(WORDS)), -1e4)
    for position, token in enumerate(answer):
        logits[0, position, token] = 1e4
    written = int("".join(WORDS[t] for t in answer if t in TOKENS.digits))
    expected = expected_numbers(logits, [digit_positions(answer, TOKENS)], TOKENS)
    assert expected.item() == pytest.approx(written)


def test_an_uncertain_model_expects_the_mean_over_tokens_of_as_many_digits() -> None:
    rng = np.random.default_rng(0)
    logits = torch.tensor(rng.standard_normal((2, 2, len(WORDS)))).float()
    answers = [[3, 10 + 20], [10 + 77, 4]]
    expected = expected_numbers(logits, [digit_positions(a, TOKENS) for a in answers], TOKENS)
    for row, answer in enumerate(answers):
        total = 0.0
        for position, token in enumerate(answer):
            ids = TOKENS.tokens[TOKENS.digits[token]].tolist()
            share = np.exp(logits[row, position, ids].double().numpy())
            mean = share @ np.array([float(WORDS[i]) for i in ids]) / share.sum()
            total += mean * 10 ** sum(TOKENS.digits[t] for t in answer[position + 1 :])
        assert expected[row].item() == pytest.approx(total, rel=1e-5)


def test_an_answer_without_numbers_is_expected_to_be_0() -> None:
    logits = torch.zeros(1, 1, len(WORDS))
    assert expected_numbers(logits, [digit_positions([110], TOKENS)], TOKENS).item() == 0.0


def test_a_gradient_step_moves_the_expected_number_towards_the_truth() -> None:
    logits = torch.zeros(1, 2, len(WORDS), requires_grad=True)
    positions, truth = [digit_positions([8, 7], TOKENS)], torch.tensor([87.0])
    before = expected_numbers(logits, positions, TOKENS)
    squared_log_error(before, truth).sum().backward()
    after = expected_numbers(logits.detach() - 50.0 * logits.grad, positions, TOKENS)
    assert before.item() < after.item() <= 99
    assert squared_log_error(truth, truth).item() == 0.0


def test_the_error_is_on_a_log_scale() -> None:
    error = squared_log_error(torch.tensor([0.0, 9.0]), torch.tensor([9.0, 99.0]))
    assert torch.allclose(error, torch.full((2,), float(np.log(10) ** 2)))
