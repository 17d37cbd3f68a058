"""Text as `transformers` itself writes it: what every other way is held against."""

import time

import torch
from torch import Tensor

from cutaway.models.lm import LM


def plain_generate(
    lm: LM, prompt: Tensor, limit: int, stops: frozenset[int], **sampling: object
) -> tuple[list[int], float]:
    """What transformers' own `generate` writes, and the seconds it takes."""
    start = time.perf_counter()
    with torch.inference_mode():
        out = lm.module.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=limit,
            pad_token_id=lm.pad_id,
            eos_token_id=sorted(stops) or None,
            **({"do_sample": False} | sampling),
        )
    return out[0, prompt.shape[1] :].tolist(), time.perf_counter() - start


def stop_token_ids(lm: LM) -> frozenset[int]:
    """The tokens that end a text."""
    found = lm.module.generation_config.eos_token_id
    if found is None:
        found = lm.tokenizer.eos_token_id
    tokens = found if isinstance(found, list) else [found]
    return frozenset(int(token) for token in tokens if token is not None)
