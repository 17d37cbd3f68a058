"""A causal model that runs in stretches of blocks, each with its own memory of keys and values.

Between two stretches a token can wait: an early exit or a draft only ran the first ones. When
later blocks are needed, the waiting tokens go through them together, so every key and value is
the one that the plain model has for these tokens. Nothing is copied, guessed or left out.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from cutaway.core.errors import BadSpec, RunError
from cutaway.models.lm import LM
from cutaway.models.sites import input_state, output_state, replace_input_state


class SegmentCache(DynamicCache):
    """Keys and values of a stretch: its length is that of its own first block, not of block 1."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__()
        self.first = first
        self.blocks = last - first
        self.passed = 0
        """Tokens that went through: a stretch without blocks has no keys to count."""

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens that have gone through this stretch."""
        if not self.blocks:
            return self.passed
        return super().get_seq_length(max(layer_idx, self.first))

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        """Length and offset of the keys that a query sees in this stretch."""
        if not self.blocks:
            return self.passed + query_length, 0
        return super().get_mask_sizes(query_length, max(layer_idx, self.first))

    def forget(self, tokens: int) -> None:
        """Drop the last tokens."""
        self.passed -= tokens
        if self.blocks:
            self.crop(-tokens)


class _SegmentDone(Exception):
    """The last block of the stretch has run."""

    def __init__(self, hidden: Tensor) -> None:
        super().__init__()
        self.hidden = hidden


@dataclass
class _ForwardCall:
    """The forward that is under way: which blocks run, and on what."""

    first: int = 0
    last: int = 0
    hidden: Tensor | None = None
    block: int = 0
    size: int | None = None
    """How many things a block gives back: None for the bare state."""


@dataclass
class SegmentedModel:
    """Stretches of blocks up to each border; `run` takes tokens through one of them."""

    lm: LM
    borders: tuple[int, ...]
    """The last layer of each stretch, in order; ends with L."""
    _call: _ForwardCall = field(default_factory=_ForwardCall)
    _memory: list[SegmentCache] = field(default_factory=list)

    def reset(self) -> None:
        """Forget all tokens."""
        ends = zip((0, *self.borders), self.borders, strict=False)
        self._memory = [SegmentCache(first, last) for first, last in ends]

    def run(self, number: int, tokens: Tensor, hidden: Tensor | None = None) -> Tensor:
        """The states (1, n, d) at the end of a stretch; `hidden` are those at its beginning.

        `tokens` (1, n) are the ids; behind the first stretch only their number matters.
        """
        self._call.first = 0 if number == 0 else self.borders[number - 1]
        self._call.last, self._call.hidden, self._call.block = self.borders[number], hidden, 0
        try:
            self.lm.body(input_ids=tokens, past_key_values=self._memory[number], use_cache=True)
        except _SegmentDone as reached:
            self._memory[number].passed += tokens.shape[1]
            return reached.hidden
        raise RunError(f"{self.lm.name!r} never reached block {self.borders[number]}.")

    def forget(self, number: int, tokens: int) -> None:
        """Drop the last tokens of a stretch."""
        if tokens:
            self._memory[number].forget(tokens)


@contextmanager
def segmented(lm: LM, exits: Sequence[int]) -> Iterator[SegmentedModel]:
    """The model cut behind these layers; whole again afterwards."""
    check_exit_layers(lm, exits)
    made = SegmentedModel(lm, (*sorted(set(exits)), lm.layers))
    with ExitStack() as stack:
        for block in lm.blocks:
            stack.callback(_restore_forward, block, block.__dict__.get("forward"))
            block.forward = _segment_forward(block.forward, made._call)
        made.reset()
        yield made


def check_exit_layers(lm: LM, exits: Sequence[int]) -> None:
    """BadSpec unless the model can be cut behind these layers."""
    if lm.kind != "causal":
        raise BadSpec(f"{lm.name!r} is a masked model: only causal models write text.")
    if len(lm.blocks) != lm.layers:
        raise BadSpec(f"{lm.family!r} calls one block again and again: it can't be cut.")
    wrong = [layer for layer in exits if not 0 <= layer < lm.layers]
    if wrong:
        raise BadSpec(
            f"Exit layer {wrong[0]} is out of range: {lm.name!r} can be left after the layers "
            f"0..{lm.layers - 1}."
        )


def _segment_forward(forward: Callable[..., Any], call: _ForwardCall) -> Callable[..., Any]:
    """A block that only runs inside the stretch, passes states on before it, and ends it."""

    def stretched(*args: Any, **kwargs: Any) -> Any:
        call.block += 1
        if not call.last:
            raise _SegmentDone(input_state(args, kwargs))
        if call.block <= call.first:
            state = input_state(args, kwargs)
            return state if call.size is None else (state, *[None] * (call.size - 1))
        if call.block == call.first + 1 and call.hidden is not None:
            args, kwargs = replace_input_state(args, kwargs, call.hidden)
        output = forward(*args, **kwargs)
        call.size = len(output) if isinstance(output, tuple) else None
        if call.block == call.last:
            raise _SegmentDone(output_state(output))
        return output

    return stretched


def _restore_forward(block: nn.Module, own: Any) -> None:
    del block.forward
    if own is not None:
        block.forward = own


def token_batch(token: int, lm: LM) -> Tensor:
    """A token as a batch of one."""
    return torch.tensor([[token]], device=lm.device)
