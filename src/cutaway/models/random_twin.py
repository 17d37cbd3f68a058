"""The same architecture with random weights: what the shape alone gives away."""

from dataclasses import replace

import torch

from cutaway.core.digest import digest_json
from cutaway.models.lm import LM


def random_twin(lm: LM, *, seed: int) -> LM:
    """A model like `lm` that has learnt nothing: weights as the family initialises them."""
    config = lm.module.config
    with torch.random.fork_rng(devices=[]):
        # The library draws initial weights from the process's own stream; fork_rng gives it back.
        torch.manual_seed(seed)
        module = type(lm.module)(config)
    like = next(lm.module.parameters())
    module = module.to(device=like.device, dtype=like.dtype).eval().requires_grad_(False)
    digest = digest_json({"twin of": config.to_json_string(), "dtype": lm.dtype, "seed": seed})
    return replace(lm, name=f"{lm.name} (random weights)", module=module, digest=digest)
