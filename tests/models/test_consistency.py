"""The checks detect what they are for: each test breaks one thing and sees its check fail."""

from dataclasses import replace

import pytest
import torch

from cutaway.models import consistency
from cutaway.models.check import run_checks


def broken(lm) -> set[str]:
    return {one.name for one in run_checks(lm) if not one.passed}


@pytest.mark.parametrize(
    ("family", "wrong", "check"),
    [
        ("gpt2", {"final": ()}, "hooks = plain hidden states"),
        ("gpt2", {"final": ()}, "unembed(final_norm(h[L])) = logits"),
        ("gpt2", {"positions": "own"}, "padding on the left changes nothing"),
        ("bert", {"positions": "own"}, "padding on the left changes nothing"),
        ("gemma2", {"logit_operations": ()}, "unembed(final_norm(h[L])) = logits"),
        ("cohere", {"logit_operations": ()}, "unembed(final_norm(h[L])) = logits"),
        ("gpt_neox", {"layout": "pre"}, "parts add up to the block"),
        ("llama", {"layout": "parallel"}, "parts add up to the block"),
        ("bert", {"attn": "attention"}, "parts add up to the block"),
        ("gemma2", {"mlp": "mlp"}, "parts add up to the block"),
        ("distilbert", {"head": ("vocab_layer_norm", "vocab_projector")},
         "unembed(final_norm(h[L])) = logits"),
        ("roberta", {"positions": "count"}, "padding on the right changes nothing"),
    ],
)  # fmt: skip
def test_a_wrong_row_fails_its_check(family, wrong, check, lm_of) -> None:
    right = lm_of(family)
    assert check in broken(replace(right, anatomy=replace(right.anatomy, **wrong)))


def test_dropout_left_on_breaks_determinism(folder_of) -> None:
    from cutaway.models.load import open_model

    lm = open_model(folder_of("gpt2"), check=False)
    lm.module.train()
    assert "determinism" in broken(lm)


def test_a_lost_bias_breaks_the_logits(folder_of) -> None:
    from cutaway.models.load import open_model

    lm = open_model(folder_of("bert"), check=False)
    assert not broken(lm)
    lm.decoder.register_forward_hook(lambda module, args, out: out - 0.01 * module.bias)
    # What is read by hand sees the hook too, except for Phi f + bias.
    assert broken(lm) == {"unembed(final_norm(h[L])) = logits"}


def test_one_wrong_token_stands_out(lm_of) -> None:
    lm = lm_of("llama")
    with torch.no_grad():
        sample = consistency.check_sample(lm)
        assert consistency.check_right_padding(lm, sample).verdict == "fine"
        sample.together["layer 2"][7] *= 1.01
        found = consistency.check_right_padding(lm, sample)
    assert (found.verdict, found.detail) == ("wrong", "worst at layer 2")
    assert found.measured > 100 * found.noise
