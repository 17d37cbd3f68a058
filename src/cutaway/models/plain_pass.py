"""What plain transformers computes for a text, without any of our reading: the reference of the
consistency checks."""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cutaway.models.lm import LM
from cutaway.models.sites import add_forward_hook


@dataclass(frozen=True)
class PlainPass:
    """What plain transformers computes for a sentence."""

    layers: tuple[Tensor, ...]
    """Its `output_hidden_states`."""
    last: Tensor
    """The body's output: layer L after the final norm."""
    logits: Tensor
    """Empty without a head."""


def plain_pass(lm: LM, ids: Tensor, mask: Tensor) -> PlainPass:
    """One forward pass of the sentence as transformers makes it."""
    given = {"input_ids": ids, "attention_mask": mask.long(), "output_hidden_states": True}
    given |= {"use_cache": False} if lm.kind == "causal" else {}
    bodies: list[Any] = []
    with ExitStack() as stack:
        add_forward_hook(stack, lm.body, lambda _, args, kwargs, output: bodies.append(output))
        out = (lm.module if lm.has_head else lm.body)(**given)
    # Some modules (opt) call a part of their body.
    body = bodies[0] if bodies else lm.body(**given)
    return PlainPass(
        out.hidden_states or (), body.last_hidden_state, getattr(out, "logits", torch.empty(0))
    )


def plain_pair(lm: LM, one: str, two: str) -> Tensor:
    """The body's output for a pair of texts as the tokenizer encodes it."""
    row = lm.tokenizer(one, two, return_tensors="pt").to(lm.device)
    types = getattr(lm.module.config, "type_vocab_size", 0)
    if "token_type_ids" in row and types <= int(row["token_type_ids"].max()):
        # Types that the model has no embedding for: plain transformers fails with them.
        del row["token_type_ids"]
    last: Tensor = lm.body(**row).last_hidden_state
    return last
