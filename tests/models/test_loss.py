"""Losses equal what plain transformers returns for each example alone."""

import numpy as np
import pytest
import torch
from torch.func import grad

from cutaway.core.errors import BadData, BadSpec
from cutaway.models.anatomy import ANATOMIES
from cutaway.models.loss import (
    LinearHead,
    answer_positions,
    head_logits,
    label_word_logits,
    lm_loss,
    mask_tokens,
    mlm_loss,
)
from cutaway.models.swap import with_params
from cutaway.models.tokens import pad, tokenize
from tests.tiny import SENTENCES

CAUSAL = [name for name, row in ANATOMIES.items() if row.kind == "causal"]
MASKED = [name for name, row in ANATOMIES.items() if row.kind == "masked"]


def batch(lm, texts=SENTENCES[:3], side="right"):
    return pad(tokenize(lm, texts, limit=24).rows, lm.pad_id, side)


def hidden(lm, side="right", seed=0, **options):
    ids, mask = batch(lm, side=side)
    inputs, labels = mask_tokens(lm, ids, mask, rng=np.random.default_rng(seed), **options)
    return ids, mask, inputs, labels


@pytest.mark.parametrize("family", CAUSAL)
@pytest.mark.parametrize("side", ["left", "right"])
def test_next_token_loss_is_what_transformers_returns_for_each_row_alone(
    family, side, lm_of
) -> None:
    lm = lm_of(family)
    ids, mask = batch(lm, side=side)
    with torch.no_grad():
        ours = lm_loss(lm, ids, mask)
        for i in range(len(ids)):
            row = ids[i][mask[i]][None]
            torch.testing.assert_close(ours[i], lm.module(row, labels=row).loss)


@pytest.mark.parametrize("family", MASKED)
def test_masked_token_loss_is_what_transformers_returns_for_each_row_alone(family, lm_of) -> None:
    lm = lm_of(family)
    _, mask, inputs, labels = hidden(lm)
    with torch.no_grad():
        ours = mlm_loss(lm, inputs, mask, labels)
        for i in range(len(inputs)):
            alone = {"input_ids": inputs[i][mask[i]][None], "labels": labels[i][mask[i]][None]}
            torch.testing.assert_close(ours[i], lm.module(**alone).loss)


def test_a_row_of_one_token_has_no_loss(lm_of) -> None:
    lm = lm_of("gpt2")
    ids, mask = pad([[5], [5, 6]], lm.pad_id)
    loss = lm_loss(lm, ids, mask)
    assert float(loss[0]) == 0
    assert float(loss[1]) > 0


def test_the_loss_is_a_function_of_the_weights(lm_of) -> None:
    lm = lm_of("llama")
    ids, mask = batch(lm)
    name = "model.layers.1.mlp.up_proj.weight"
    weight = lm.params()[name].detach()
    loss = lambda _: lm_loss(lm, ids, mask).mean()  # noqa: E731
    slope = grad(lambda w: with_params(lm.module, {name: w}, loss))(weight)
    step = torch.zeros_like(weight)
    step[0, 0] = 1e-2
    up, down = (with_params(lm.module, {name: weight + s}, loss) for s in (step, -step))
    assert float(slope[0, 0]) == pytest.approx(float(up - down) / 2e-2, rel=0.02, abs=1e-5)


def test_hiding_is_seeded_and_touches_ordinary_tokens_only(lm_of) -> None:
    lm = lm_of("bert")
    ids, mask, inputs, labels = hidden(lm, seed=3)
    again = hidden(lm, seed=3)
    other = hidden(lm, seed=4)
    assert torch.equal(inputs, again[2])
    assert torch.equal(labels, again[3])
    assert not torch.equal(labels, other[3])
    chosen = labels != -100
    assert not bool(torch.isin(ids[chosen], torch.tensor(lm.tokenizer.all_special_ids)).any())
    assert not bool((chosen & ~mask).any())
    assert torch.equal(inputs[~chosen], ids[~chosen])
    assert torch.equal(labels[chosen], ids[chosen])
    assert bool(chosen.any(dim=1).all())


def test_hiding_keeps_its_shares(lm_of) -> None:
    lm = lm_of("bert")
    ids = torch.full((200, 50), 20)
    mask = torch.ones_like(ids, dtype=torch.bool)
    inputs, labels = mask_tokens(lm, ids, mask, rng=np.random.default_rng(0))
    chosen = labels != -100
    assert float(chosen.float().mean()) == pytest.approx(0.15, abs=0.015)
    kinds = inputs[chosen]
    assert float((kinds == lm.tokenizer.mask_token_id).float().mean()) == pytest.approx(
        0.8, abs=0.04
    )
    assert float((kinds == 20).float().mean()) == pytest.approx(0.1, abs=0.04)
    only, labels = mask_tokens(lm, ids, mask, rng=np.random.default_rng(0), style="mask")
    assert bool((only[labels != -100] == lm.tokenizer.mask_token_id).all())


def test_hiding_needs_a_mask_token_and_an_ordinary_one(lm_of) -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(BadSpec, match="no mask token"):
        mask_tokens(lm_of("gpt2"), *batch(lm_of("gpt2")), rng=rng)
    with pytest.raises(BadData, match="Row 1"):
        mask_tokens(lm_of("bert"), *batch(lm_of("bert"), ["fox", ""]), rng=rng)
    with pytest.raises(BadSpec, match="'half'"):
        mask_tokens(lm_of("bert"), *batch(lm_of("bert")), rng=rng, style="half")


@pytest.mark.parametrize("side", ["left", "right"])
def test_label_words_are_read_at_the_last_or_at_the_mask_token(side, lm_of) -> None:
    words = torch.tensor([20, 30, 40])
    causal, masked = lm_of("llama"), lm_of("bert")
    texts = ["the fox is [MASK] and lazy", "it was [MASK]"]
    for lm in (causal, masked):
        ids, mask = batch(lm, texts, side)
        got = label_word_logits(lm, ids, mask, words)
        for i in range(2):
            row = ids[i][mask[i]]
            at = -1 if lm is causal else row.tolist().index(lm.tokenizer.mask_token_id)
            torch.testing.assert_close(got[i], lm.module(row[None]).logits[0, at, words])


def test_a_template_without_a_mask_token_is_refused(lm_of) -> None:
    lm = lm_of("bert")
    with pytest.raises(BadData, match="Row 0"):
        answer_positions(lm, *batch(lm, ["the fox"]))


@pytest.mark.parametrize(("family", "at"), [("gpt2", -1), ("bert", 0)])
def test_a_head_reads_the_last_token_of_causal_and_the_first_of_masked_models(
    family, at, lm_of
) -> None:
    lm = lm_of(family)
    rng = torch.Generator().manual_seed(0)
    head = LinearHead(torch.randn(4, lm.width, generator=rng), torch.randn(4, generator=rng))
    ids, mask = batch(lm)
    ours = head_logits(lm, head, ids, mask)
    for i in range(3):
        state = lm.module.base_model(ids[i][mask[i]][None]).last_hidden_state[0, at]
        torch.testing.assert_close(ours[i], head.weight @ state + head.bias)


def test_a_head_has_gradients_of_its_own_and_a_known_place(lm_of) -> None:
    lm = lm_of("bert")
    weight = torch.zeros(2, lm.width, requires_grad=True)
    head = LinearHead(weight, torch.zeros(2))
    ids, mask = batch(lm, ["a [MASK] fox"])
    head_logits(lm, head, ids, mask, at="mask")[:, 1].sum().backward()
    assert float(weight.grad.abs().sum()) > 0
    with pytest.raises(BadSpec, match="'middle'"):
        head_logits(lm, head, ids, mask, at="middle")
