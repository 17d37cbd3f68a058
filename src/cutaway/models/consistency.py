"""Consistency checks: what Cutaway reads from a model against what plain transformers computes.

Each check runs the same weights on the same short sentences, and compares vectors: the relative
error is a root mean square over tokens, layer by layer. It is judged by the rounding noise of the
same layer of this model in this precision (`rounding.py`), so one wrong token in a hundred still
exceeds it a thousandfold in float32.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from cutaway.models.block_layout import BLOCK_EQUATIONS, BLOCK_PARTS
from cutaway.models.hooks import (
    ForwardStates,
    collect_states,
    run_from,
    visit_layers,
)
from cutaway.models.lm import LM
from cutaway.models.plain_pass import PlainPass, plain_pair, plain_pass
from cutaway.models.rounding import (
    VERDICTS,
    Verdict,
    judge,
    relative_error,
    rounding_noise,
    with_seed,
)
from cutaway.models.sites import PartSide, Site
from cutaway.models.tokens import pad, tokenize

PaddingSide = Literal["left", "right"]
SENTENCES = (
    "The old clock in the hall struck nine.",
    "Rain fell all night, but by morning the road was dry again.",
    "Who asked?",
    "She counted 12 boats, three gulls and one very tired dog on the beach.",
)


@dataclass(frozen=True)
class ConsistencyCheck:
    """One check, measured on one model."""

    name: str
    measured: float
    """The relative error where it is largest compared with the noise."""
    noise: float
    """The rounding noise there."""
    verdict: Verdict
    detail: str = ""

    @property
    def passed(self) -> bool:
        """Whether the model can be used."""
        return self.verdict != "wrong"


@dataclass(frozen=True)
class StateDifference:
    """A relative error and the rounding noise of the same states."""

    measured: float
    noise: float
    where: str

    @property
    def severity(self) -> tuple[int, float]:
        """The verdict's place, then the error in units of the noise."""
        place = VERDICTS.index(judge(self.measured, self.noise))
        return place, self.measured / max(self.noise, 1e-300)


@dataclass(frozen=True)
class CheckSample:
    """Short sentences as tokens, their states, and the rounding noise of these."""

    rows: list[list[int]]
    alone: list[ForwardStates]
    """Every layer of each sentence, read alone and unpadded."""
    plain: list[PlainPass]
    together: dict[str, Tensor]
    """States of all tokens in a batch padded on the right: `layer 3`, `final`, `logits`."""
    noise: dict[str, float]
    """By the same names, and those of the parts of blocks."""

    def layer(self, number: int, measured: float) -> StateDifference:
        """A difference at a layer, with the noise there."""
        return StateDifference(measured, self.noise[f"layer {number}"], f"layer {number}")


def check_sample(
    lm: LM, sentences: Sequence[str] = SENTENCES, noise: dict[str, float] | None = None
) -> CheckSample:
    """The sentences' tokens and states, and the rounding noise, unless it is given."""
    rows = tokenize(lm, sentences, limit=min(lm.context, 16)).rows

    def read() -> dict[str, Tensor]:
        return _named_states(lm, rows)

    together = with_seed(lm, read)
    return CheckSample(
        rows,
        [_read(lm, [row]) for row in rows],
        [plain_pass(lm, *_batch(lm, [row])) for row in rows],
        together,
        rounding_noise(lm, read, together) if noise is None else noise,
    )


def _named_states(lm: LM, rows: list[list[int]]) -> dict[str, Tensor]:
    """Layers, what the final norm makes of the last one, and some tokens' logits."""
    ids, mask = _batch(lm, rows)
    layers = {layer: state[mask] for layer, state in collect_states(lm, ids, mask).layers.items()}
    named = {f"layer {layer}": state for layer, state in layers.items()}
    named["final"] = lm.final_norm(layers[lm.layers])
    return named | ({"logits": lm.unembed(named["final"][::8])} if lm.has_head else {})


def check_hidden_states(lm: LM, sample: CheckSample) -> ConsistencyCheck:
    """Layers read by hooks equal the plain model's `output_hidden_states`."""
    found = []
    for plain, ours in zip(sample.plain, sample.alone, strict=True):
        if len(plain.layers) != lm.layers + 1:
            found.append(StateDifference(float("inf"), 0.0, f"{len(plain.layers)} plain states"))
            continue
        for layer, state in enumerate(plain.layers[:-1], start=lm.anatomy.first_hidden_state):
            error = relative_error(ours.layers[layer], state)
            found.append(sample.layer(layer, error))
        end = relative_error(lm.final_norm(ours.layers[lm.layers]), plain.last)
        found.append(StateDifference(end, sample.noise["final"], f"layer {lm.layers}"))
    return _conclude("hooks = plain hidden states", found)


def check_logits(lm: LM, sample: CheckSample) -> ConsistencyCheck:
    """unembed(final_norm(h[L])) and Phi f + bias equal the plain model's logits."""
    last = torch.cat([one.layers[lm.layers] for one in sample.alone], dim=1)
    plain = torch.cat([one.logits for one in sample.plain], dim=1)
    computed = [lm.unembed(lm.final_norm(last))]
    if not lm.anatomy.logit_operations:
        phi, bias = lm.output_embedding
        computed.append(torch.nn.functional.linear(lm.head_features(last), phi, bias))
    noise = sample.noise["logits"]
    found = [StateDifference(relative_error(one, plain), noise, "") for one in computed]
    return _conclude("unembed(final_norm(h[L])) = logits", found)


def check_text_pairs(lm: LM, sample: CheckSample) -> ConsistencyCheck:
    """A pair of texts with our token types gives the same states as in plain transformers."""
    one, two = SENTENCES[0], SENTENCES[2]
    rows = tokenize(lm, [one], pairs=[two]).rows
    plain = plain_pair(lm, one, two)
    error = relative_error(lm.final_norm(_read(lm, rows).layers[lm.layers]), plain)
    return _conclude("pairs = plain pairs", [StateDifference(error, sample.noise["final"], "")])


def check_left_padding(lm: LM, sample: CheckSample) -> ConsistencyCheck:
    """A sentence in a batch padded on the left has the same states as alone."""
    ids, mask = _batch(lm, sample.rows, "left")
    together = {layer: state[mask] for layer, state in collect_states(lm, ids, mask).layers.items()}
    found = _compare_layers(sample, together, _join(sample.alone))
    return _conclude("padding on the left changes nothing", found)


def check_right_padding(lm: LM, sample: CheckSample) -> ConsistencyCheck:
    """A sentence in a batch padded on the right has the same states as alone."""
    together = {layer: sample.together[f"layer {layer}"] for layer in range(lm.layers + 1)}
    found = _compare_layers(sample, together, _join(sample.alone))
    return _conclude("padding on the right changes nothing", found)


def check_batching(lm: LM, sample: CheckSample) -> ConsistencyCheck:
    """A sentence in a batch of equal length, in any order, has the same states as alone."""
    order = sorted(range(len(sample.rows)), key=lambda i: len(sample.rows[i]))
    whole, longest = (sample.rows[i] for i in order[-2:])
    rows = [whole, longest[: len(whole)]]
    single = _join([sample.alone[order[-2]], _read(lm, rows[1:])])
    together, turned = _read(lm, rows).layers, _read(lm, rows[::-1]).layers
    straight = {layer: state.flatten(0, 1) for layer, state in together.items()}
    backward = {layer: state.flip(0).flatten(0, 1) for layer, state in turned.items()}
    found = [d for ours in (straight, backward) for d in _compare_layers(sample, ours, single)]
    return _conclude("batch and order change nothing", found)


def check_determinism(lm: LM, sample: CheckSample) -> ConsistencyCheck:
    """The same sentence gives the same states twice."""
    again = _read(lm, [sample.rows[0]]).layers
    return _conclude("determinism", _compare_layers(sample, again, sample.alone[0].layers))


def check_early_stop(lm: LM, sample: CheckSample) -> ConsistencyCheck:
    """A forward pass stopped at a layer gives the same states as the full one."""
    ids, mask = _batch(lm, [sample.rows[0]])
    found = []
    for layer in _some_layers(lm):
        seen: list[Tensor] = []
        visit_layers(lm, ids, mask, [layer], lambda _, state, __, seen=seen: seen.append(state))  # type: ignore[misc]
        found.append(sample.layer(layer, relative_error(seen[0], sample.alone[0].layers[layer])))
    return _conclude("early stop shows the same states", found)


def check_run_from(lm: LM, sample: CheckSample) -> ConsistencyCheck:
    """The blocks after a layer turn its states into layer L."""
    ids, mask = _batch(lm, sample.rows[::2])
    full = collect_states(lm, ids, mask).layers
    found = []
    for layer in _some_layers(lm):
        ended = run_from(lm, full[layer], layer, ids, mask)
        error = relative_error(ended[mask], full[lm.layers][mask])
        found.append(StateDifference(error, sample.noise[f"layer {lm.layers}"], f"layer {layer}"))
    return _conclude("run_from(h[l]) = h[L]", found)


def check_block_parts(lm: LM, sample: CheckSample) -> ConsistencyCheck:
    """The parts of a block add up to its output as the layout says."""

    def read() -> dict[str, Tensor]:
        return _part_states(lm, sample.rows[0])

    states = with_seed(lm, read)
    if "block 1 block.out" not in sample.noise:
        sample.noise.update(rounding_noise(lm, read, states))
    found = []
    for layer in sorted({1, lm.layers}):
        for equation in BLOCK_EQUATIONS[lm.anatomy.layout]:
            left, _, right = equation.partition(" = ")
            terms = [states[f"block {layer} {name}"] for name in right.split(" + ")]
            where = f"block {layer} {left}"
            error = relative_error(states[where], torch.stack(terms).sum(0))
            found.append(StateDifference(error, sample.noise[where], where))
    return _conclude("parts add up to the block", found, f"layout {lm.anatomy.layout}")


def _part_states(lm: LM, row: list[int]) -> dict[str, Tensor]:
    """Input and output of the parts of two blocks; norm2 is norm1 where a block has one norm."""
    parts = [part for part in BLOCK_PARTS if part == "block" or getattr(lm.anatomy, part)]
    sides: tuple[PartSide, ...] = ("in", "out")
    sites = [Site(n, part, side) for n in {1, lm.layers} for part in parts for side in sides]
    got = collect_states(lm, *_batch(lm, [row]), [], sites).sites
    states = {f"block {at.layer} {at.part}.{at.side}": state for at, state in got.items()}
    return {name.replace("norm1", "norm2"): value for name, value in states.items()} | states


def check_attention_sums(lm: LM, sample: CheckSample) -> ConsistencyCheck:
    """The attention weights of each token sum to 1 over the real tokens of its sentence."""
    ids, mask = _batch(lm, sample.rows)
    got = collect_states(lm, ids, mask, attention=True).attention
    found = [StateDifference(float("inf"), 0.0, "")] if len(got) < lm.layers else []
    for block, weights in got.items():
        if weights.shape[-2:] != (mask.shape[1], mask.shape[1]):
            # Compressed or windowed keys: not one weight per token.
            found.append(StateDifference(float("inf"), 0.0, f"block {block}"))
            continue
        on_real = (weights.float() * mask[:, None, None, :]).sum(-1).transpose(1, 2)[mask]
        error = relative_error(on_real[..., None], torch.ones_like(on_real)[..., None])
        # Sums are rounded like the block's input.
        noise = sample.noise[f"layer {block - 1}"]
        found.append(StateDifference(error, noise, f"block {block}"))
    count = f"{len(got)} of {lm.layers} blocks return it"
    return _conclude("attention sums to 1", found, count)


QUICK_CHECKS = (check_hidden_states, check_logits, check_left_padding, check_right_padding)
"""Checks that are made when a model is opened."""


Check = Callable[[LM, CheckSample], ConsistencyCheck]


def applicable_checks(lm: LM, *, thorough: bool = True) -> list[Check]:
    """The checks that apply to a model; the quick ones first."""
    needed = {check_logits: lm.has_head, check_left_padding: lm.anatomy.padding == "either"}
    checks: list[Check] = [one for one in QUICK_CHECKS if needed.get(one, True)]
    if thorough:
        checks += [check_batching, check_determinism, check_early_stop]
        checks += [check_run_from] if lm.anatomy.resumable else []
        checks += [check_text_pairs] if lm.kind == "masked" else []
        checks += [check_block_parts] if lm.anatomy.mlp is not None else []
        checks += [check_attention_sums] if lm.anatomy.attn is not None else []
    return checks


def _conclude(name: str, found: Iterable[StateDifference], detail: str = "") -> ConsistencyCheck:
    """The check with the most severe of its differences."""
    worst = max(found, key=lambda one: one.severity)
    where = f"worst at {worst.where}" if worst.where and worst.measured else ""
    return ConsistencyCheck(
        name,
        worst.measured,
        worst.noise,
        judge(worst.measured, worst.noise),
        ", ".join(filter(None, (where, detail))),
    )


def _compare_layers(
    sample: CheckSample, ours: dict[int, Tensor], plain: dict[int, Tensor]
) -> list[StateDifference]:
    return [sample.layer(n, relative_error(ours[n], state)) for n, state in plain.items()]


def _join(alone: list[ForwardStates]) -> dict[int, Tensor]:
    """All tokens of all sentences, layer by layer (tokens, d)."""
    return {layer: torch.cat([one.layers[layer][0] for one in alone]) for layer in alone[0].layers}


def _read(lm: LM, rows: list[list[int]]) -> ForwardStates:
    return collect_states(lm, *_batch(lm, rows))


def _batch(lm: LM, rows: list[list[int]], side: PaddingSide = "right") -> tuple[Tensor, Tensor]:
    ids, mask = pad(rows, lm.pad_id, side)
    return ids.to(lm.device), mask.to(lm.device)


def _some_layers(lm: LM) -> list[int]:
    return sorted({0, 1, lm.layers // 2, lm.layers - 1, lm.layers})
