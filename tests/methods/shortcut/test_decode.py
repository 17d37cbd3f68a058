"""Decoding: verified drafts and exits give the tokens that a literal run gives."""

from dataclasses import replace

import pytest
import torch
from scipy.stats import chisquare

from cutaway.methods.shortcut.decode import (
    Drafter,
    TokenPicker,
    early_exit_decode,
    plain_decode,
    plain_generate,
    speculative_decode,
    stop_token_ids,
)
from cutaway.methods.shortcut.maths.fit import IDENTITY, Shortcut
from cutaway.methods.shortcut.predictions import logits_fn
from cutaway.methods.shortcut.segments import segmented
from cutaway.models.hooks import collect_states
from tests.tiny import FAMILIES

CAUSAL = [name for name, row in FAMILIES.items() if row.kind == "causal"]
NEVER = frozenset({-1})


def ids_of(lm, count: int, *, seed: int = 0) -> torch.Tensor:
    return torch.randint(5, lm.vocab, (1, count), generator=torch.Generator().manual_seed(seed))


def drafter(lm, *, length: int = 3, floor: float = 0.0, jump: Shortcut = IDENTITY) -> Drafter:
    weight, bias = lm.output_embedding
    words = torch.arange(lm.vocab)
    turned = weight.detach().T.contiguous()
    return Drafter(jump, words, turned, None if bias is None else bias.detach(), length, floor)


@pytest.mark.slow
@pytest.mark.parametrize("family", CAUSAL)
@torch.inference_mode()
def test_verified_drafts_give_what_generate_gives(family, tiny_lm) -> None:
    lm = tiny_lm(family)
    for seed in range(3):
        prompt = ids_of(lm, 5, seed=seed)
        [expected], _ = plain_generate(lm, prompt, 12, NEVER)
        with segmented(lm, [lm.layers - 1]) as cut:
            found = speculative_decode(
                cut, prompt, drafter(lm), logits_fn(lm), limit=12, stops=NEVER
            )
        assert found.tokens == expected


@torch.inference_mode()
def test_a_hundred_prompts_give_what_generate_gives(toy) -> None:
    stops = frozenset({int(toy.tokenizer.eos_token_id)})
    prompts = [ids_of(toy, 1 + seed % 7, seed=seed) for seed in range(100)]
    plain = [plain_generate(toy, prompt, 16, stops)[0][0] for prompt in prompts]
    kept = 0
    with segmented(toy, [2]) as cut:
        for prompt, expected in zip(prompts, plain, strict=True):
            cut.reset()
            draft = drafter(toy, floor=0.2)
            found = speculative_decode(cut, prompt, draft, logits_fn(toy), limit=16, stops=stops)
            kept += found.accepted
            assert found.tokens == expected
    assert kept > 50


@torch.inference_mode()
def test_an_exit_that_is_never_confident_gives_what_generate_gives(toy) -> None:
    prompt = ids_of(toy, 4)
    [expected], _ = plain_generate(toy, prompt, 14, NEVER)
    jumps = dict.fromkeys((1, 2, 3), IDENTITY)
    with segmented(toy, [1, 2]) as cut:
        found = early_exit_decode(
            cut, prompt, jumps, logits_fn(toy), lambda_=1.112, limit=14, stops=NEVER
        )
    assert found.tokens == expected
    assert set(found.layers) == {3}


@pytest.mark.parametrize("lambda_", [-1.112, 0.2, 0.5, 0.8])
@torch.inference_mode()
def test_early_exit_with_a_cache_equals_a_literal_run_without_one(toy, lambda_: float) -> None:
    prompt, head = ids_of(toy, 4, seed=2), logits_fn(toy)
    jumps = dict.fromkeys((1, 2, 3), IDENTITY)
    with segmented(toy, [1, 2]) as cut:
        found = early_exit_decode(cut, prompt, jumps, head, lambda_=lambda_, limit=12, stops=NEVER)
    row, layers = prompt[0].tolist(), [3]
    row.append(found.tokens[0])
    while len(row) < 4 + 12:
        need = 0.9 * lambda_ + 0.1 * torch.exp(torch.tensor(-4.0 * (len(row) - 1) / 16))
        ids = torch.tensor([row])
        seen = collect_states(toy, ids, torch.ones_like(ids, dtype=torch.bool)).layers
        for layer in (1, 2, 3):
            logits = head(seen[layer][0, -1:])[0]
            top = logits.softmax(-1).topk(2).values
            if layer == 3 or top[0] - top[1] > need:
                break
        row.append(int(logits.argmax()))
        layers.append(layer)
    assert found.tokens == row[4:]
    assert found.layers == layers
    if lambda_ == -1.112:
        assert set(layers[1:]) == {1}


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox"])
@pytest.mark.parametrize("layer", [0, 1])
@torch.inference_mode()
def test_drafts_that_use_the_previous_state_give_what_generate_gives(
    family, layer: int, tiny_lm
) -> None:
    lm = tiny_lm(family)
    rng = torch.Generator().manual_seed(layer)
    jump = Shortcut((torch.randn(2 * lm.width, lm.width, generator=rng) / lm.width**0.5,))
    prompt = ids_of(lm, 5)
    [expected], _ = plain_generate(lm, prompt, 14, NEVER)
    with segmented(lm, [layer]) as cut:
        found = speculative_decode(
            cut, prompt, replace(drafter(lm, jump=jump), uses_previous=True), logits_fn(lm),
            limit=14, stops=NEVER,
        )  # fmt: skip
        cut.reset()
    assert found.tokens == expected
    assert found.drafted > 0


@torch.inference_mode()
def test_the_plain_loop_gives_what_generate_gives(toy) -> None:
    prompt = ids_of(toy, 4)
    [expected], _ = plain_generate(toy, prompt, 14, NEVER)
    with segmented(toy, []) as cut:
        assert plain_decode(cut, prompt, logits_fn(toy), limit=14, stops=NEVER).tokens == expected


@pytest.mark.parametrize("floor", [0.0, 0.5, 0.9])
@torch.inference_mode()
def test_sampled_drafts_follow_the_models_distribution_whatever_the_floor(
    toy, floor: float
) -> None:
    """The third token, the first that can have been drafted after a drafted one."""
    prompt, head = ids_of(toy, 3), logits_fn(toy)
    rng, counts = torch.Generator().manual_seed(0), torch.zeros(toy.vocab)
    tries = drafted = 0
    with segmented(toy, [1]) as cut:
        for _ in range(250):
            cut.reset()
            found = speculative_decode(
                cut, prompt, drafter(toy, length=2, floor=floor), head, limit=4, stops=NEVER,
                picker=TokenPicker(rng),
            )  # fmt: skip
            counts[found.tokens[2]] += 1
            tries, drafted = tries + 2 * found.rounds, drafted + found.drafted
    wanted = third_token(toy, prompt)
    order = wanted.argsort(descending=True)
    kinds = torch.cat([counts[order[:6]], counts[order[6:]].sum()[None]])
    hoped = torch.cat([wanted[order[:6]], wanted[order[6:]].sum()[None]])
    assert chisquare(kinds.numpy(), (250 * hoped / hoped.sum()).numpy()).pvalue > 1e-3
    assert drafted > 0 if floor < 0.9 else drafted < tries


def third_token(lm, prompt: torch.Tensor) -> torch.Tensor:
    """The model's exact distribution of the third token, over all likely first and second ones."""
    rows, weights = prompt, torch.ones(1)
    for _ in range(2):
        probs = last_probs(lm, rows) * weights[:, None]
        likely = (probs > 1e-5).nonzero()
        weights = probs[likely[:, 0], likely[:, 1]]
        rows = torch.cat([rows[likely[:, 0]], likely[:, 1:]], dim=1)
    return weights @ last_probs(lm, rows)


def last_probs(lm, rows: torch.Tensor) -> torch.Tensor:
    return lm.module(rows, use_cache=False).logits[:, -1].softmax(-1)


def test_stop_tokens_come_from_the_generation_config_or_the_tokenizer(toy, monkeypatch) -> None:
    for configured, expected in ((7, {7}), ([3, 5], {3, 5}), (None, {toy.tokenizer.eos_token_id})):
        monkeypatch.setattr(toy.module.generation_config, "eos_token_id", configured)
        assert stop_token_ids(toy) == expected


@torch.inference_mode()
def test_generation_ends_with_a_stop_token(toy) -> None:
    prompt = ids_of(toy, 4)
    with segmented(toy, []) as cut:
        tokens = plain_decode(cut, prompt, logits_fn(toy), limit=14, stops=NEVER).tokens
        stop = frozenset({tokens[3]})
        cut.reset()
        stopped = plain_decode(cut, prompt, logits_fn(toy), limit=14, stops=stop).tokens
    assert stopped == tokens[: tokens.index(tokens[3]) + 1]


@pytest.mark.parametrize("limit", [1, 2, 5])
@torch.inference_mode()
def test_no_more_tokens_are_generated_than_allowed(toy, limit) -> None:
    prompt, jumps = ids_of(toy, 4), dict.fromkeys((1, 3), IDENTITY)
    options = {"limit": limit, "stops": NEVER}
    with segmented(toy, [1]) as cut:
        drafted = speculative_decode(cut, prompt, drafter(toy, length=8), logits_fn(toy), **options)
        cut.reset()
        exited = early_exit_decode(cut, prompt, jumps, logits_fn(toy), lambda_=0.3, **options)
    assert len(drafted.tokens) == len(exited.tokens) == limit
    assert len(exited.layers) == limit
    assert drafted.accepted <= drafted.drafted


def test_a_low_temperature_samples_the_most_likely_token() -> None:
    logits = torch.tensor([0.1, 2.0, 1.9])
    cold = TokenPicker(torch.Generator().manual_seed(0), temperature=0.01)
    assert {cold.pick(logits) for _ in range(20)} == {1}
    warm = TokenPicker(torch.Generator().manual_seed(0), temperature=5.0)
    assert len({warm.pick(logits) for _ in range(50)}) == 3


@torch.inference_mode()
def test_draft_probabilities_are_the_softmax_over_the_vocabulary(toy) -> None:
    hidden = torch.randn(3, toy.width, generator=torch.Generator().manual_seed(0))
    few = torch.tensor([2, 9, 17])
    full = drafter(toy)
    some = replace(full, vocabulary=few, weight=full.weight[:, few])
    logits = logits_fn(toy)(hidden)
    torch.testing.assert_close(
        some.probs(toy, hidden, 2.0), (logits[:, few] / 2).softmax(-1), rtol=1e-4, atol=1e-5
    )
