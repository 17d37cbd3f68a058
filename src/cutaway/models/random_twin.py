"""The same architecture with random weights: a baseline for what the architecture contributes."""

from dataclasses import replace

import torch

from cutaway.core.digest import digest_json
from cutaway.models.lm import LM


def random_twin(lm: LM, *, seed: int) -> LM:
    """A model like `lm` with untrained weights, as the family initialises them."""
    config = lm.module.config
    with torch.random.fork_rng(devices=[]):
        # The library initialises from the global random state, which fork_rng restores.
        torch.manual_seed(seed)
        module = type(lm.module)(config)
    like = next(lm.module.parameters())
    module = module.to(device=like.device, dtype=like.dtype).eval().requires_grad_(False)
    digest = digest_json({"twin of": config.to_json_string(), "dtype": lm.dtype, "seed": seed})
    return replace(lm, name=f"{lm.name} (random weights)", module=module, digest=digest)
