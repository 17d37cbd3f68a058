"""Features of p that are computed block by block equal the dense products."""

import pytest
import torch

from cutaway.core.errors import BadSpec
from cutaway.methods.nextword.maths import readout
from cutaway.methods.nextword.maths.readout import (
    OutputHead,
    expectations,
    next_token_probs,
    random_projection,
    vocab_blocks,
    word_features,
)
from tests.methods.nextword.maths.heads import HEADS, VOCAB, N, output_head

DOUBLE = torch.float64


@pytest.mark.parametrize("name", HEADS)
def test_logits_are_the_transformed_affine_map(name: str, f) -> None:
    head = output_head(**HEADS[name])
    expected = f @ head.phi.T
    if head.bias is not None:
        expected = expected + head.bias
    if head.transform is not None:
        expected = 3 * torch.tanh(expected / 3)
    torch.testing.assert_close(head(f), expected)
    assert head.vocab == VOCAB


@pytest.mark.parametrize("name", HEADS)
def test_logits_can_be_written_into_a_buffer(name: str, f) -> None:
    head, buffer = output_head(**HEADS[name]), torch.full((N, VOCAB), 7.0, dtype=DOUBLE)
    torch.testing.assert_close(head(f, buffer), head(f))


@pytest.mark.parametrize("name", HEADS)
def test_expectations_equal_the_dense_product(name: str, f) -> None:
    head = output_head(**HEADS[name])
    p = torch.softmax(head(f), dim=1)
    got = expectations(f, head, {"phi_p": head.phi, "ones": torch.ones(VOCAB, 1).double()})
    torch.testing.assert_close(got.values["phi_p"], p @ head.phi)
    torch.testing.assert_close(got.values["ones"], torch.ones(N, 1, dtype=DOUBLE))
    torch.testing.assert_close(got.logz, head(f).logsumexp(1))


@pytest.mark.parametrize("block", [16, 50, N, 10 * N])
def test_expectations_do_not_depend_on_the_size_of_blocks(block, f, monkeypatch) -> None:
    head = output_head(bias=True)
    whole = torch.softmax(head(f), dim=1) @ head.phi
    monkeypatch.setattr(readout, "BLOCK_ELEMENTS", block * VOCAB)
    counts: list[int] = []
    got = expectations(f, head, {"phi_p": head.phi}, done=counts.append)
    torch.testing.assert_close(got.values["phi_p"], whole)
    assert sum(counts) == N and max(counts) <= max(16, block)


def test_blocks_cover_every_row_once_and_have_at_least_16_rows(monkeypatch) -> None:
    for n in (0, 1, 16, 17, 240):
        for vocab in (1, 260, 10**9):
            blocks = list(vocab_blocks(n, vocab))
            assert [i for b in blocks for i in range(b.start, b.stop)] == list(range(n))
            assert all(b.stop - b.start >= 16 for b in blocks[:-1])


@pytest.mark.parametrize("name", HEADS)
def test_p_sums_to_1_and_words_are_columns_of_the_logits(name: str, f) -> None:
    head, ids = output_head(**HEADS[name]), [3, 200, 7]
    p = next_token_probs(f, head)
    torch.testing.assert_close(p.sum(1), torch.ones(N, dtype=DOUBLE))
    at = head.at(f, ids)
    torch.testing.assert_close(at, head(f)[:, ids])
    logz = head(f).logsumexp(1)
    torch.testing.assert_close(word_features(at, logz, "probs"), p[:, ids])
    assert word_features(at, logz, "logits") is at


def test_logits_too_large_for_exp_give_finite_probabilities() -> None:
    head = OutputHead(torch.tensor([[1e4], [-1e4], [9.99e3]]))
    p = next_token_probs(torch.ones(2, 1), head)
    assert torch.isfinite(p).all() and p[0].argmax() == 0
    result = expectations(torch.ones(2, 1), head, {"phi_p": head.phi})
    torch.testing.assert_close(result.logz, torch.full((2,), 1e4))


def test_an_unknown_kind_of_word_feature_is_refused(f) -> None:
    with pytest.raises(BadSpec, match="logits or probs"):
        word_features(f, f[:, 0], "odds")


def test_a_projection_has_orthonormal_columns_and_a_seed() -> None:
    like = torch.zeros(1, dtype=DOUBLE)
    made = random_projection(5, VOCAB, seed=3, like=like)
    torch.testing.assert_close(made.T @ made, torch.eye(5, dtype=DOUBLE))
    assert torch.equal(made, random_projection(5, VOCAB, seed=3, like=like))
    assert not torch.equal(made, random_projection(5, VOCAB, seed=4, like=like))
    with pytest.raises(BadSpec, match="projection to 9 dimensions"):
        random_projection(9, 8, seed=0, like=like)
