"""Writing text token by token: early exit, and drafts that the full model verifies."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from cutaway.methods.shortcut.maths.exit import exit_threshold
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
    """The tokens written, and what it took."""

    tokens: list[int] = field(default_factory=list)
    layers: list[int] = field(default_factory=list)
    """Layers behind each token: where it left the model."""
    drafted: int = 0
    accepted: int = 0
    rounds: int = 0


@dataclass(frozen=True)
class Drafter:
    """How a draft is made: a jump to the end, a head over few words, when to stop."""

    jump: Shortcut
    words: Tensor
    """Token ids the draft chooses from."""
    weight: Tensor
    """(e, words): their columns of the head, lying as a single row is multiplied quickest."""
    bias: Tensor | None
    length: int
    """At most so many tokens are drafted at once."""
    floor: float
    """Drafting stops below this confidence: such a token would rarely be kept."""
    back: bool = False
    """The jump starts from two states: the token before at the last layer, this one here."""

    def foresee(self, before: Tensor, here: Tensor) -> Tensor:
        """The last layer's state as the draft expects it: in place of the blocks left out."""
        return self.jump(torch.cat([before, here], dim=-1) if self.back else here)

    def probs(self, lm: LM, final: Tensor, temperature: float) -> Tensor:
        """Probabilities over `words` after foreseen states (..., d) of the last layer."""
        logits = lm.head_features(final) @ self.weight
        logits = logits if self.bias is None else logits + self.bias
        return torch.softmax(logits.float() / temperature, dim=-1)


@dataclass(frozen=True)
class TokenPicker:
    """How a token is picked from a distribution: the likeliest, or drawn with a generator."""

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
    """Drafted tokens, the distributions they come from, and the states of all of them."""

    states: list[Tensor]
    tokens: list[int] = field(default_factory=list)
    spread: list[Tensor] = field(default_factory=list)


def speculative_decode(
    cut: SegmentedModel,
    prompt: Tensor,
    drafter: Drafter,
    head: LogitsFn,
    *,
    limit: int,
    stops: frozenset[int],
    chance: TokenPicker = GREEDY,
) -> DecodeResult:
    """Up to `limit` tokens, drafted by the first stretch and verified by the second.

    With a generator tokens are drawn from the model's distribution, without one the likeliest
    are taken. Either way the full model alone decides what is written.
    """
    lm, written = cut.lm, DecodeResult()
    final = cut.run(1, prompt, cut.run(0, prompt))
    token, before = chance.pick(head(final[0, -1:])[0]), final[0, -1]
    while _append_token(written, token, lm.layers, limit, stops):
        room = min(drafter.length, limit - len(written.tokens) - 1)
        draft = _draft(cut, token, before, drafter, room, chance)
        ids = torch.tensor([[token, *draft.tokens]], device=lm.device)
        final = cut.run(1, ids, torch.cat(draft.states, dim=1))
        verdict = _verify(draft, head(final[0]), drafter, chance)
        written.rounds += 1
        written.drafted += len(draft.tokens)
        written.accepted += verdict.kept
        for kept in draft.tokens[: verdict.kept]:
            if not _append_token(written, kept, lm.layers, limit, stops):
                return written
        for stretch in (0, 1):
            cut.forget(stretch, len(draft.tokens) - verdict.kept)
        token, before = verdict.following, final[0, verdict.kept]
    return written


def _draft(
    cut: SegmentedModel,
    token: int,
    before: Tensor,
    drafter: Drafter,
    length: int,
    chance: TokenPicker,
) -> _Draft:
    """Tokens for as long as the draft is sure; `before` is the last layer before `token`.

    Whether to go on is decided before a token is drawn, from the draft's own distribution: so a
    token that is drawn has that distribution, and verifying keeps the full model's.
    """
    draft = _Draft([cut.run(0, token_batch(token, cut.lm))])
    while len(draft.tokens) < length:
        before = drafter.foresee(before, draft.states[-1][0, -1])
        probs = drafter.probs(cut.lm, before, chance.temperature)
        if float(probs.max()) < drafter.floor:
            break
        place = int(probs.argmax()) if chance.rng is None else sample_token(probs, rng=chance.rng)
        draft.tokens.append(int(drafter.words[place]))
        draft.spread.append(probs)
        draft.states.append(cut.run(0, token_batch(draft.tokens[-1], cut.lm)))
    return draft


def _verify(
    draft: _Draft, logits: Tensor, drafter: Drafter, chance: TokenPicker
) -> DraftAcceptance:
    tokens = torch.tensor(draft.tokens, dtype=torch.long)
    if chance.rng is None:
        return accept_greedy(tokens, logits)
    full = torch.softmax(logits / chance.temperature, dim=-1)
    drafted = torch.zeros(len(tokens), logits.shape[1])
    if draft.tokens:
        drafted[:, drafter.words] = torch.stack(draft.spread)
    return accept_sampled(tokens, drafted, full, rng=chance.rng)


def plain_decode(
    cut: SegmentedModel,
    prompt: Tensor,
    head: LogitsFn,
    *,
    limit: int,
    stops: frozenset[int],
    chance: TokenPicker = GREEDY,
) -> DecodeResult:
    """Up to `limit` tokens, one at a time through the whole model: what drafts must beat."""
    lm, written = cut.lm, DecodeResult()
    token = chance.pick(head(cut.run(0, prompt)[0, -1:])[0])
    while _append_token(written, token, lm.layers, limit, stops):
        token = chance.pick(head(cut.run(0, token_batch(token, lm))[0])[0])
    return written


def _append_token(
    written: DecodeResult, token: int, layer: int, limit: int, stops: frozenset[int]
) -> bool:
    """Write a token; False when the text ends with it."""
    written.tokens.append(token)
    written.layers.append(layer)
    return len(written.tokens) < limit and token not in stops


def early_exit_decode(
    cut: SegmentedModel,
    prompt: Tensor,
    jumps: dict[int, Shortcut],
    head: LogitsFn,
    *,
    lambda_: float,
    limit: int,
    stops: frozenset[int],
    chance: TokenPicker = GREEDY,
) -> DecodeResult:
    """Up to `limit` tokens, each from the first exit layer that is sure enough.

    The paper's rule: the gap of the two highest probabilities exceeds
    0.9 lambda + 0.1 exp(-4 t / N), with N the length the text is going to have.
    """
    lm, written = cut.lm, DecodeResult()
    length = float(prompt.shape[1] + limit)
    waiting = [prompt.new_zeros(1, 0, lm.width, dtype=getattr(torch, lm.dtype))] * len(cut.borders)
    hidden = cut.run(0, prompt)
    for stretch in range(1, len(cut.borders)):
        hidden = cut.run(stretch, prompt, hidden)
    token = chance.pick(head(hidden[0, -1:])[0])
    layer = lm.layers
    while _append_token(written, token, layer, limit, stops):
        need = float(exit_threshold(lambda_, prompt.shape[1] + len(written.tokens) - 1, length))
        hidden = cut.run(0, token_batch(token, lm))
        for stretch, layer in enumerate(cut.borders):
            logits = head(jumps[layer](hidden[0, -1:]))[0]
            if layer == lm.layers or _top_two_gap(logits) > need:
                break
            # Tokens that left here earlier catch up together with this one.
            queue = torch.cat([waiting[stretch], hidden], dim=1)
            waiting[stretch] = queue[:, :0]
            hidden = cut.run(stretch + 1, queue.new_zeros(queue.shape[:2], dtype=torch.long), queue)
        if layer < lm.layers:
            waiting[stretch] = torch.cat([waiting[stretch], hidden], dim=1)
        token = chance.pick(logits)
    return written


def _top_two_gap(logits: Tensor) -> float:
    top = torch.softmax(logits, dim=-1).topk(2).values
    return float(top[0] - top[1])
