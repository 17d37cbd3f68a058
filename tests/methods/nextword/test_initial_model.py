"""The model that quad trains."""

import pytest
import torch

from cutaway.core.errors import BadSpec
from cutaway.methods.nextword.initial_model import base_and_initial
from cutaway.methods.nextword.spec import QuadSpec


def initial(lm, **options):
    return base_and_initial(QuadSpec(model="m", **options), {"m": lm})


def test_a_copy_has_the_same_weights_in_other_memory(tiny_lm) -> None:
    base, lm = initial(tiny_lm("llama"))
    for name, value in base.params().items():
        assert torch.equal(value, lm.params()[name])
        assert value.data_ptr() != lm.params()[name].data_ptr()


def test_random_weights_have_the_same_shapes_and_follow_the_seed(tiny_lm) -> None:
    made = [initial(tiny_lm("llama"), start="fresh", seed=seed)[1] for seed in (0, 0, 1)]
    first, again, other = (lm.output_embedding[0] for lm in made)
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert first.shape == tiny_lm("llama").output_embedding[0].shape
    assert made[0].digest == made[1].digest != made[2].digest


def test_a_small_model_has_the_given_size_and_the_bases_tokenizer(tiny_lm) -> None:
    base, lm = initial(tiny_lm("gpt2"), start="small", width=64, depth=3)
    assert (lm.layers, lm.width, lm.family) == (3, 64, "llama")
    assert lm.tokenizer is base.tokenizer and lm.vocab >= len(base.tokenizer)
    assert lm.parameters == sum(p.numel() for p in lm.module.parameters())
    ids = torch.tensor([[1, 2, 3]])
    assert lm.module(ids).logits.shape == (1, 3, lm.vocab)


def test_a_width_that_heads_cannot_share_is_refused(tiny_lm) -> None:
    with pytest.raises(BadSpec, match="multiple of 32, got 104"):
        initial(tiny_lm("gpt2"), start="small", width=104)


def test_untying_gives_a_separate_output_embedding(tiny_lm) -> None:
    base, lm = initial(tiny_lm("gpt2"), untie=True)
    assert base.tied and not lm.tied and lm.digest == f"{base.digest}-untied"
    assert torch.equal(lm.output_embedding[0], base.output_embedding[0])
    assert lm.parameters == base.parameters + base.output_embedding[0].numel()
    with torch.no_grad():
        lm.output_embedding[0].add_(1.0)
    assert torch.equal(lm.module.get_input_embeddings().weight, base.output_embedding[0])


def test_the_name_says_what_was_trained_without_commas(tiny_lm) -> None:
    base, lm = initial(tiny_lm("gpt2"), start="fresh", objective="ce")
    assert lm.name == f"{base.name} (fresh ce)"


def test_masked_models_are_refused(tiny_lm) -> None:
    with pytest.raises(BadSpec, match="Give a causal model"):
        initial(tiny_lm("bert"))
