"""Predictions of a layer: every number equals its definition, for any chunk size."""

import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from cutaway.methods.shortcut.maths.fit import fit_shortcuts
from cutaway.methods.shortcut.maths.lens import (
    PRECISION_KS,
    concat_predictions,
    final_distribution,
    layer_predictions,
)
from tests.methods.shortcut.maths.test_moments import gather


def logits_of(rows: int, vocab: int = 40, *, seed: int = 0) -> torch.Tensor:
    return 3 * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))


def test_every_number_equals_its_definition() -> None:
    final, early, coming = logits_of(30), logits_of(30, seed=1), torch.arange(30)
    reading = layer_predictions(early, final_distribution(final), coming)
    p, q = Categorical(logits=final.double()), Categorical(logits=early.double())
    assert torch.equal(reading.guess, early.argmax(1))
    torch.testing.assert_close(reading.surprisal, -p.log_prob(early.argmax(1)))
    torch.testing.assert_close(reading.kl, kl_divergence(p, q))
    torch.testing.assert_close(reading.entropy, q.entropy())
    torch.testing.assert_close(reading.loss, -q.log_prob(coming))
    top = q.probs.sort(descending=True).values
    torch.testing.assert_close(reading.confidence, top[:, 0])
    torch.testing.assert_close(reading.gap, top[:, 0] - top[:, 1])
    for k in PRECISION_KS:
        among = [g in row for g, row in zip(reading.guess, final.topk(k).indices, strict=True)]
        assert reading.in_top(k).tolist() == among


@pytest.mark.parametrize("k", PRECISION_KS)
def test_the_last_layer_agrees_with_the_full_model(k: int) -> None:
    logits = logits_of(20)
    reading = layer_predictions(logits, final_distribution(logits))
    assert reading.in_top(k).all()
    assert torch.equal(reading.kl, torch.zeros(20, dtype=torch.float64))


@pytest.mark.parametrize(
    ("vocab", "scale", "offset"),
    [(50_000, 1.0, 0.0), (262_144, 5.0, 0.0), (262_144, 0.1, 300.0), (262_144, 40.0, -900.0)],
)
def test_large_vocabularies_and_large_logits_cost_no_digits(vocab, scale, offset) -> None:
    final = scale * logits_of(3, vocab) + offset
    early = final + 0.5 * logits_of(3, vocab, seed=1) + 70
    full = final_distribution(final)
    reading = layer_predictions(early, full, torch.arange(3))
    p, q = final.double().log_softmax(-1), early.double().log_softmax(-1)
    expected = {
        "kl": (p.exp() * (p - q)).sum(-1), "entropy": -(q.exp() * q).sum(-1),
        "surprisal": -p.gather(1, early.argmax(1, keepdim=True))[:, 0],
        "loss": -q[torch.arange(3), torch.arange(3)], "confidence": q.amax(-1).exp(),
    }  # fmt: skip
    for name, value in expected.items():
        torch.testing.assert_close(getattr(reading, name), value, rtol=0, atol=1e-9)
    assert not layer_predictions(final, full).kl.any()


def test_ties_do_not_break_the_agreement() -> None:
    logits = torch.zeros(3, 40)
    logits[1, 5:30] = 1.0
    assert layer_predictions(logits, final_distribution(logits)).in_top(1).all()


def test_a_vocabulary_smaller_than_k_works() -> None:
    logits = logits_of(4, vocab=3)
    assert (
        layer_predictions(logits_of(4, vocab=3, seed=1), final_distribution(logits))
        .in_top(10)
        .all()
    )


def test_unknown_next_tokens_have_no_loss() -> None:
    logits = logits_of(3)
    reading = layer_predictions(logits, final_distribution(logits), torch.tensor([1, -1, 2]))
    assert reading.loss.isnan().tolist() == [False, True, False]
    assert layer_predictions(logits, final_distribution(logits)).loss.isnan().all()


def test_concatenated_chunks_equal_one_chunk() -> None:
    final, early = logits_of(10), logits_of(10, seed=1)
    parts = [
        layer_predictions(early[i : i + 3], final_distribution(final[i : i + 3]))
        for i in range(0, 10, 3)
    ]
    whole, joined = layer_predictions(early, final_distribution(final)), concat_predictions(parts)
    torch.testing.assert_close(joined.kl, whole.kl)
    assert torch.equal(joined.rank, whole.rank)


def test_exactly_linear_layers_give_precision_1() -> None:
    x, mix, head = torch.randn(300, 8), torch.randn(8, 8), torch.randn(8, 40)
    jump = fit_shortcuts(gather({0: x, 1: x @ mix}, [(0, 1)]), 0, [1])[1]
    reading = layer_predictions(jump(x) @ head, final_distribution(x @ mix @ head))
    assert float(reading.in_top(1).float().mean()) == 1.0
