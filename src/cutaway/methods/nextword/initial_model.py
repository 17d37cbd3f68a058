"""The model that `quad` trains: a copy, one with random weights, or a small new one."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from cutaway.core.digest import digest_json
from cutaway.core.errors import BadSpec
from cutaway.methods.nextword.spec import QuadSpec
from cutaway.models.anatomy import ANATOMIES
from cutaway.models.lm import LM
from cutaway.models.load import random_twin
from cutaway.recipe.objects import Objects
from cutaway.recipe.open_for_spec import open_spec_model


def base_and_initial(spec: QuadSpec, objects: Objects) -> tuple[LM, LM]:
    """The given model and the model to train, which is always a copy."""
    base = open_spec_model(spec, objects)
    if base.kind != "causal":
        raise BadSpec(
            f"quad trains causal models, and {base.name!r} is {base.kind}. Give a causal model."
        )
    lm = INITIALISERS[spec.start](base, spec)
    name = f"{base.name} ({spec.start}, {spec.objective})"
    lm = replace(lm, name=name.replace(",", ""))
    return base, untie_embeddings(lm) if spec.untie and lm.tied else lm


def _copy_of_base(base: LM, spec: QuadSpec) -> LM:
    return replace(base, module=deepcopy(base.module))


def _random_weights(base: LM, spec: QuadSpec) -> LM:
    return random_twin(base, seed=spec.seed)


def _small_llama(base: LM, spec: QuadSpec) -> LM:
    """A new llama model with the base's tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    heads = max(1, spec.width // 32)
    if spec.width % heads or (spec.width // heads) % 2:
        raise BadSpec(f"width must be a multiple of 32, got {spec.width}.")
    config = LlamaConfig(
        vocab_size=max(len(base.tokenizer), base.vocab), hidden_size=spec.width,
        intermediate_size=3 * spec.width, num_hidden_layers=spec.depth,
        num_attention_heads=heads, num_key_value_heads=heads,
        max_position_embeddings=max(spec.max_tokens, 512), tie_word_embeddings=True,
        pad_token_id=base.tokenizer.pad_token_id, bos_token_id=base.tokenizer.bos_token_id,
        eos_token_id=base.tokenizer.eos_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        module: Any = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
    module = module.to(device=base.device).eval().requires_grad_(False)
    return replace(
        base, family="llama", anatomy=ANATOMIES["llama"], module=module, layers=spec.depth,
        width=spec.width, vocab=config.vocab_size, tied=True, has_head=True,
        parameters=sum(p.numel() for p in module.parameters()),
        context=config.max_position_embeddings, token_types=False,
        digest=digest_json({"small": config.to_json_string(), "seed": spec.seed}),
    )  # fmt: skip


def untie_embeddings(lm: LM) -> LM:
    """Give the model a separate output embedding, equal to the input embedding at first."""
    decoder: Any = lm.decoder
    decoder.weight = nn.Parameter(decoder.weight.detach().clone(), requires_grad=False)
    lm.module.config.tie_word_embeddings = False
    parameters = sum(p.numel() for p in lm.module.parameters())
    return replace(lm, tied=False, parameters=parameters, digest=f"{lm.digest}-untied")


INITIALISERS = {"model": _copy_of_base, "fresh": _random_weights, "small": _small_llama}
