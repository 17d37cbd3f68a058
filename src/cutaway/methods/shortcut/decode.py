"""Token-by-token decoding: plain, with early exit, and with drafts that the full model verifies."""

import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cutaway.methods.shortcut.maths.exit_simulation import exit_threshold
from cutaway.methods.shortcut.maths.fit import Shortcut
from cutaway.methods.shortcut.maths.lens import LogitsFn
from cutaway.methods.shortcut.maths.speculate import (
    DraftAcceptance,
    accept_greedy,
    accept_sampled,
    sample_token,
)
from cutaway.methods.shortcut.segments import SegmentedModel, token_batch
from cutaway.models.lm import LM


@dataclass
class DecodeResult:
    """The generated tokens, and the work they took."""

    tokens: list[int] = field(default_factory=list)
    layers: list[int] = field(default_factory=list)
    """The layer after which each token exited."""
    drafted: int = 0
    accepted: int = 0
    rounds: int = 0

    def append(self, token: int, layer: int, limit: int, stops: frozenset[int]) -> bool:
        """Add a token; False when the text ends with it."""
        self.tokens.append(token)
        self.layers.append(layer)
        return len(self.tokens) < limit and token not in stops

    def extend(self, other: "DecodeResult") -> None:
        """Add a continuation of this text."""
        self.tokens += other.tokens
        self.layers += other.layers
        self.drafted += other.drafted
        self.accepted += other.accepted
        self.rounds += other.rounds


@dataclass(frozen=True)
class Drafter:
    """How tokens are drafted: a map to the last layer, a head over few tokens, when to stop."""

    jump: Shortcut
    vocabulary: Tensor
    """Ids of the tokens a draft chooses from."""
    weight: Tensor
    """(e, tokens): their columns of the output embedding, in the layout that is fastest here."""
    bias: Tensor | None
    length: int
    """Maximum number of tokens per draft."""
    floor: float
    """Drafting stops below this confidence: such a token would rarely be accepted."""
    uses_previous: bool = False
    """Whether the map takes two states: the previous token's at the last layer, and this one's."""

    def final_state(self, previous: Tensor, hidden: Tensor) -> Tensor:
        """The predicted state of the last layer."""
        return self.jump(torch.cat([previous, hidden], dim=-1) if self.uses_previous else hidden)

    def probs(self, lm: LM, final: Tensor, temperature: float) -> Tensor:
        """Probabilities over `vocabulary` after predicted states (..., d) of the last layer."""
        logits = lm.head_features(final) @ self.weight
        logits = logits if self.bias is None else logits + self.bias
        return torch.softmax(logits.float() / temperature, dim=-1)


@dataclass(frozen=True)
class TokenPicker:
    """How the next token is chosen: the most likely one, or sampled with a generator."""

    rng: torch.Generator | None = None
    temperature: float = 1.0

    def pick(self, logits: Tensor) -> int:
        """A token of the full model."""
        if self.rng is None:
            return int(logits.argmax())
        return sample_token(torch.softmax(logits / self.temperature, dim=-1), rng=self.rng)


GREEDY = TokenPicker()


@dataclass
class _Draft:
    """Drafted tokens, their distributions, and the states of the first segment."""

    states: list[Tensor]
    tokens: list[int] = field(default_factory=list)
    probs: list[Tensor] = field(default_factory=list)


def speculative_decode(
    model: SegmentedModel,
    prompt: Tensor,
    drafter: Drafter,
    head: LogitsFn,
    *,
    limit: int,
    stops: frozenset[int],
    picker: TokenPicker = GREEDY,
) -> DecodeResult:
    """Up to `limit` tokens, drafted by the first segment and verified by the second.

    The result follows the full model's distribution exactly, whatever the drafts are.
    """
    last, result = model.lm.layers, DecodeResult()
    final = model.run(1, prompt, model.run(0, prompt))
    token, previous = picker.pick(head(final[0, -1:])[0]), final[0, -1]
    while result.append(token, last, limit, stops):
        length = min(drafter.length, limit - len(result.tokens) - 1)
        draft = _draft(model, token, previous, drafter, length, picker)
        ids = torch.tensor([[token, *draft.tokens]], device=model.lm.device)
        final = model.run(1, ids, torch.cat(draft.states, dim=1))
        accepted = _verify(draft, head(final[0]), drafter, picker)
        result.rounds += 1
        result.drafted += len(draft.tokens)
        result.accepted += accepted.count
        for drafted in draft.tokens[: accepted.count]:
            if not result.append(drafted, last, limit, stops):
                return result
        for segment in (0, 1):
            model.drop_last(segment, len(draft.tokens) - accepted.count)
        token, previous = accepted.next_token, final[0, accepted.count]
    return result


def _draft(
    model: SegmentedModel,
    token: int,
    previous: Tensor,
    drafter: Drafter,
    length: int,
    picker: TokenPicker,
) -> _Draft:
    """Tokens for as long as the draft is confident; `previous` is the last layer before `token`.

    Whether to continue is decided from the distribution before a token is sampled from it. A
    drafted token therefore has exactly that distribution, which verification relies on.
    """
    draft = _Draft([model.run(0, token_batch(token, model.lm))])
    while len(draft.tokens) < length:
        previous = drafter.final_state(previous, draft.states[-1][0, -1])
        probs = drafter.probs(model.lm, previous, picker.temperature)
        if float(probs.max()) < drafter.floor:
            break
        index = int(probs.argmax()) if picker.rng is None else sample_token(probs, rng=picker.rng)
        draft.tokens.append(int(drafter.vocabulary[index]))
        draft.probs.append(probs)
        draft.states.append(model.run(0, token_batch(draft.tokens[-1], model.lm)))
    return draft


def _verify(
    draft: _Draft, logits: Tensor, drafter: Drafter, picker: TokenPicker
) -> DraftAcceptance:
    tokens = torch.tensor(draft.tokens, dtype=torch.long)
    if picker.rng is None:
        return accept_greedy(tokens, logits)
    full = torch.softmax(logits / picker.temperature, dim=-1)
    drafted = torch.zeros(len(tokens), logits.shape[1])
    if draft.tokens:
        drafted[:, drafter.vocabulary] = torch.stack(draft.probs)
    return accept_sampled(tokens, drafted, full, rng=picker.rng)


def plain_decode(
    model: SegmentedModel,
    prompt: Tensor,
    head: LogitsFn,
    *,
    limit: int,
    stops: frozenset[int],
    picker: TokenPicker = GREEDY,
) -> DecodeResult:
    """Up to `limit` tokens, each through all layers: the baseline of this loop."""
    lm, result = model.lm, DecodeResult()
    token = picker.pick(head(model.run(0, prompt)[0, -1:])[0])
    while result.append(token, lm.layers, limit, stops):
        token = picker.pick(head(model.run(0, token_batch(token, lm))[0])[0])
    return result


def early_exit_decode(
    model: SegmentedModel,
    prompt: Tensor,
    jumps: dict[int, Shortcut],
    head: LogitsFn,
    *,
    lambda_: float,
    limit: int,
    stops: frozenset[int],
    picker: TokenPicker = GREEDY,
) -> DecodeResult:
    """Up to `limit` tokens, each from the first exit layer that is confident enough.

    The paper's rule: the gap between the two highest probabilities exceeds
    0.9 lambda + 0.1 exp(-4 t / N), with N the length of the finished text.
    """
    lm, result = model.lm, DecodeResult()
    length = float(prompt.shape[1] + limit)
    waiting = [prompt.new_zeros(1, 0, lm.width, dtype=getattr(torch, lm.dtype))] * len(model.ends)
    hidden = model.run(0, prompt)
    for segment in range(1, len(model.ends)):
        hidden = model.run(segment, prompt, hidden)
    token, layer = picker.pick(head(hidden[0, -1:])[0]), lm.layers
    while result.append(token, layer, limit, stops):
        position = prompt.shape[1] + len(result.tokens) - 1
        needed = float(exit_threshold(lambda_, position, length))
        hidden = model.run(0, token_batch(token, lm))
        for segment, layer in enumerate(model.ends):
            logits = head(jumps[layer](hidden[0, -1:]))[0]
            if layer == lm.layers or _top_two_gap(logits) > needed:
                break
            # Tokens that exited here earlier go through the next segment with this one.
            queue = torch.cat([waiting[segment], hidden], dim=1)
            waiting[segment] = queue[:, :0]
            ids = queue.new_zeros(queue.shape[:2], dtype=torch.long)
            hidden = model.run(segment + 1, ids, queue)
        if layer < lm.layers:
            waiting[segment] = torch.cat([waiting[segment], hidden], dim=1)
        token = picker.pick(logits)
    return result


def _top_two_gap(logits: Tensor) -> float:
    top = torch.softmax(logits, dim=-1).topk(2).values
    return float(top[0] - top[1])


@torch.inference_mode()
def plain_generate(
    lm: LM, prompts: Tensor, limit: int, stops: frozenset[int], **sampling: object
) -> tuple[list[list[int]], float]:
    """The new tokens of each prompt from transformers' own `generate`, and the seconds it takes."""
    start = time.perf_counter()
    out = lm.module.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        max_new_tokens=limit,
        pad_token_id=lm.pad_id,
        eos_token_id=sorted(stops) or None,
        **({"do_sample": False} | sampling),
    )
    return out[:, prompts.shape[1] :].tolist(), time.perf_counter() - start


def stop_token_ids(lm: LM) -> frozenset[int]:
    """The tokens that end a text."""
    ids = lm.module.generation_config.eos_token_id
    if ids is None:
        ids = lm.tokenizer.eos_token_id
    return frozenset(int(i) for i in (ids if isinstance(ids, list) else [ids]) if i is not None)
