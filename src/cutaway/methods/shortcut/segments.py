"""A causal model that runs in segments of blocks, each with its own key-value cache.

Between two segments a token can wait: an early exit or a draft runs only the first segments. When
later blocks are needed, the waiting tokens go through them together, so every key and value equals
the plain model's for these tokens. No cached value is copied, approximated or left out.
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
    """Keys and values of a segment; its length is that of the segment's first block."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__()
        self.first = first
        self.blocks = last - first
        self.num_tokens = 0
        """Tokens that went through: a segment without blocks has no keys to count."""

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens that have gone through this segment."""
        if not self.blocks:
            return self.num_tokens
        return super().get_seq_length(max(layer_idx, self.first))

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        """Length and offset of the keys that a query sees in this segment."""
        if not self.blocks:
            return self.num_tokens + query_length, 0
        return super().get_mask_sizes(query_length, max(layer_idx, self.first))

    def drop_last(self, tokens: int) -> None:
        """Remove the last tokens."""
        self.num_tokens -= tokens
        if self.blocks:
            self.crop(-tokens)


class _SegmentDone(Exception):
    """Raised by the last block of a segment to leave the forward pass."""

    def __init__(self, hidden: Tensor) -> None:
        super().__init__()
        self.hidden = hidden


@dataclass
class _ForwardCall:
    """The current forward pass: which blocks run, and on which states."""

    first: int = 0
    last: int = 0
    hidden: Tensor | None = None
    block: int = 0
    output_size: int | None = None
    """Length of a block's output tuple; None when it returns the bare state."""


@dataclass
class SegmentedModel:
    """A model in segments; `run` takes tokens through one of them."""

    lm: LM
    ends: tuple[int, ...]
    """The last layer of each segment, in order; the final one is L."""
    _call: _ForwardCall = field(default_factory=_ForwardCall)
    _caches: list[SegmentCache] = field(default_factory=list)

    def reset(self) -> None:
        """Empty all caches."""
        ranges = zip((0, *self.ends), self.ends, strict=False)
        self._caches = [SegmentCache(first, last) for first, last in ranges]

    def run(self, segment: int, tokens: Tensor, hidden: Tensor | None = None) -> Tensor:
        """The states (1, n, d) at the end of a segment; `hidden` are those at its beginning.

        `tokens` (1, n) are the ids; after the first segment only their number matters.
        """
        self._call.first = 0 if segment == 0 else self.ends[segment - 1]
        self._call.last, self._call.hidden, self._call.block = self.ends[segment], hidden, 0
        try:
            self.lm.body(input_ids=tokens, past_key_values=self._caches[segment], use_cache=True)
        except _SegmentDone as done:
            self._caches[segment].num_tokens += tokens.shape[1]
            return done.hidden
        raise RunError(f"{self.lm.name!r} never reached block {self.ends[segment]}.")

    def drop_last(self, segment: int, tokens: int) -> None:
        """Remove the last tokens from a segment's cache."""
        if tokens:
            self._caches[segment].drop_last(tokens)


@contextmanager
def segmented(lm: LM, exit_layers: Sequence[int]) -> Iterator[SegmentedModel]:
    """The model cut after these layers; the blocks are restored afterwards."""
    check_exit_layers(lm, exit_layers)
    model = SegmentedModel(lm, (*sorted(set(exit_layers)), lm.layers))
    with ExitStack() as stack:
        for block in lm.blocks:
            stack.callback(_restore_forward, block, block.__dict__.get("forward"))
            block.forward = _segment_forward(block.forward, model._call)
        model.reset()
        yield model


def check_exit_layers(lm: LM, exit_layers: Sequence[int]) -> None:
    """BadSpec unless the model can be cut after these layers."""
    if lm.kind != "causal":
        raise BadSpec(f"{lm.name!r} is a masked model: only causal models generate text.")
    if len(lm.blocks) != lm.layers:
        raise BadSpec(
            f"{lm.family!r} shares one block between its layers, so it can't be cut into segments."
        )
    wrong = [layer for layer in exit_layers if not 0 <= layer < lm.layers]
    if wrong:
        raise BadSpec(
            f"Exit layer {wrong[0]} is out of range: {lm.name!r} can exit after layers "
            f"0..{lm.layers - 1}."
        )


def _segment_forward(forward: Callable[..., Any], call: _ForwardCall) -> Callable[..., Any]:
    """A block that runs only within the segment, passes states through before it, and ends it."""

    def run_in_segment(*args: Any, **kwargs: Any) -> Any:
        call.block += 1
        if not call.last:
            raise _SegmentDone(input_state(args, kwargs))
        if call.block <= call.first:
            state = input_state(args, kwargs)
            return state if call.output_size is None else (state, *[None] * (call.output_size - 1))
        if call.block == call.first + 1 and call.hidden is not None:
            args, kwargs = replace_input_state(args, kwargs, call.hidden)
        output = forward(*args, **kwargs)
        call.output_size = len(output) if isinstance(output, tuple) else None
        if call.block == call.last:
            raise _SegmentDone(output_state(output))
        return output

    return run_in_segment


def _restore_forward(block: nn.Module, own: Any) -> None:
    del block.forward
    if own is not None:
        block.forward = own


def token_batch(token: int, lm: LM) -> Tensor:
    """A token as a batch of one."""
    return torch.tensor([[token]], device=lm.device)
