"""Writing text token by token: early exit, and drafts that the full model verifies."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from cutaway.methods.shortcut.exit import threshold
from cutaway.methods.shortcut.fit import Shortcut
from cutaway.methods.shortcut.lens import Head
from cutaway.methods.shortcut.speculate import Verdict, draw, greedy, sampled
from cutaway.models.lm import LM
from cutaway.run.shortcut.segments import Segments, one


@dataclass
class Written:
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
    bias: Tensor | None
    length: int
    """At most so many tokens are drafted at once."""
    floor: float
    """Drafting stops below this confidence: such a token would rarely be kept."""

    def probs(self, lm: LM, hidden: Tensor, temperature: float) -> Tensor:
        """Probabilities over `words` after states (d,) of the draft layer."""
        features = lm.head_features(self.jump(hidden))
        logits = features @ self.weight.T
        logits = logits if self.bias is None else logits + self.bias
        return torch.softmax(logits.float() / temperature, dim=-1)


def speculate(
    cut: Segments,
    prompt: Tensor,
    drafter: Drafter,
    head: Head,
    *,
    limit: int,
    stops: frozenset[int],
    rng: torch.Generator | None = None,
    temperature: float = 1.0,
) -> Written:
    """Up to `limit` tokens, drafted by the first stretch and verified by the second.

    With a generator tokens are drawn from the model's distribution, without one the likeliest
    are taken. Either way the full model alone decides what is written.
    """
    lm, written = cut.lm, Written()
    front = cut.run(0, prompt)
    rear = cut.run(1, prompt, front)
    token = _pick(head(rear[0, -1:])[0], rng, temperature)
    while _take(written, token, lm.layers, limit, stops):
        room = limit - len(written.tokens) - 1
        draft, spread, states = _draft(
            cut, token, drafter, min(drafter.length, room), rng, temperature
        )
        logits = head(cut.run(1, _ids(lm, [token, *draft]), torch.cat(states, dim=1))[0])
        verdict = _judge(draft, spread, logits, drafter, rng, temperature)
        written.rounds += 1
        written.drafted += len(draft)
        written.accepted += verdict.kept
        for kept in draft[: verdict.kept]:
            if not _take(written, kept, lm.layers, limit, stops):
                return written
        for stretch in (0, 1):
            cut.forget(stretch, len(draft) - verdict.kept)
        token = verdict.following
    return written


def _draft(
    cut: Segments,
    token: int,
    drafter: Drafter,
    length: int,
    rng: torch.Generator | None,
    temperature: float,
) -> tuple[list[int], list[Tensor], list[Tensor]]:
    """Drafted tokens, the distributions they come from, and the states of all of them."""
    draft: list[int] = []
    spread: list[Tensor] = []
    states = [cut.run(0, one(token, cut.lm))]
    while len(draft) < length:
        probs = drafter.probs(cut.lm, states[-1][0, -1], temperature)
        if float(probs.max()) < drafter.floor:
            break
        place = int(probs.argmax()) if rng is None else draw(probs, rng=rng)
        draft.append(int(drafter.words[place]))
        spread.append(probs)
        states.append(cut.run(0, one(draft[-1], cut.lm)))
    return draft, spread, states


def _judge(
    draft: list[int],
    spread: list[Tensor],
    logits: Tensor,
    drafter: Drafter,
    rng: torch.Generator | None,
    temperature: float,
) -> Verdict:
    tokens = torch.tensor(draft, dtype=torch.long)
    if rng is None:
        return greedy(tokens, logits)
    full = torch.softmax(logits / temperature, dim=-1)
    drafted = torch.zeros(len(draft), logits.shape[1])
    if draft:
        drafted[:, drafter.words] = torch.stack(spread)
    return sampled(tokens, drafted, full, rng=rng)


def _pick(logits: Tensor, rng: torch.Generator | None, temperature: float) -> int:
    if rng is None:
        return int(logits.argmax())
    return draw(torch.softmax(logits / temperature, dim=-1), rng=rng)


def _take(written: Written, token: int, layer: int, limit: int, stops: frozenset[int]) -> bool:
    """Write a token; False when the text ends with it."""
    written.tokens.append(token)
    written.layers.append(layer)
    return len(written.tokens) < limit and token not in stops


def _ids(lm: LM, tokens: list[int]) -> Tensor:
    return torch.tensor([tokens], device=lm.device)


def exit_early(
    cut: Segments,
    prompt: Tensor,
    jumps: dict[int, Shortcut],
    head: Head,
    *,
    lambda_: float,
    limit: int,
    stops: frozenset[int],
    rng: torch.Generator | None = None,
    temperature: float = 1.0,
) -> Written:
    """Up to `limit` tokens, each from the first exit layer that is sure enough.

    The paper's rule: the gap of the two highest probabilities exceeds
    0.9 lambda + 0.1 exp(-4 t / N), with N the length the text is going to have.
    """
    lm, written = cut.lm, Written()
    length = float(prompt.shape[1] + limit)
    waiting = [prompt.new_zeros(1, 0, lm.width, dtype=getattr(torch, lm.dtype))] * len(cut.borders)
    hidden = cut.run(0, prompt)
    for stretch in range(1, len(cut.borders)):
        hidden = cut.run(stretch, prompt, hidden)
    token = _pick(head(hidden[0, -1:])[0], rng, temperature)
    layer = lm.layers
    while _take(written, token, layer, limit, stops):
        need = float(threshold(lambda_, prompt.shape[1] + len(written.tokens) - 1, length))
        hidden = cut.run(0, one(token, lm))
        for stretch, layer in enumerate(cut.borders):
            logits = head(jumps[layer](hidden[0, -1:]))[0]
            if layer == lm.layers or _gap(logits) > need:
                break
            # Tokens that left here earlier catch up together with this one.
            queue = torch.cat([waiting[stretch], hidden], dim=1)
            waiting[stretch] = queue[:, :0]
            hidden = cut.run(stretch + 1, queue.new_zeros(queue.shape[:2], dtype=torch.long), queue)
        if layer < lm.layers:
            waiting[stretch] = torch.cat([waiting[stretch], hidden], dim=1)
        token = _pick(logits, rng, temperature)
    return written


def _gap(logits: Tensor) -> float:
    top = torch.softmax(logits, dim=-1).topk(2).values
    return float(top[0] - top[1])
