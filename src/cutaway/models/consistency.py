"""Consistency checks: what Cutaway reads from a model against what plain transformers computes.

Each check runs the same weights on the same short sentences. There are two error measures, both
per token, so that a token with a huge norm doesn't hide errors at the others:

- where the arithmetic is the same, the largest |ours - plain| / |plain|;
- where batches differ, kernels sum in another order, and sound models amplify this rounding at
  single tokens (tenfold and more in SmolLM2, at the space before a number). There it is the root
  mean square over all tokens, each relative to the largest norm of its residual stream so far. A
  wrong position, mask or norm moves tokens by a tenth or more, so one wrong token in a hundred
  still exceeds the limit a thousandfold.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from cutaway.models.hooks import (
    ForwardStates,
    collect_states,
    forward_kwargs,
    run_from,
    visit_layers,
)
from cutaway.models.lm import LM
from cutaway.models.sites import Site
from cutaway.models.tokens import pad, tokenize

PaddingSide = Literal["left", "right"]
SENTENCES = (
    "The old clock in the hall struck nine.",
    "Rain fell all night, but by morning the road was dry again.",
    "Who asked?",
    "She counted 12 boats, three gulls and one very tired dog on the beach.",
)
LIMITS = {"float64": 1e-10, "float32": 1e-5, "float16": 2e-2, "bfloat16": 1.5e-1}


@dataclass(frozen=True)
class ConsistencyCheck:
    """One check, measured on one model."""

    name: str
    passed: bool
    measured: float
    limit: float
    detail: str = ""


@dataclass(frozen=True)
class CheckSample:
    """Short sentences as tokens, and the states of each when read alone and unpadded."""

    rows: list[list[int]]
    alone: list[ForwardStates]


def check_sample(lm: LM, sentences: Sequence[str] = SENTENCES) -> CheckSample:
    """The sentences' tokens, and every layer of each when read alone."""
    rows = tokenize(lm, sentences, limit=min(lm.context, 32)).rows
    return CheckSample(rows, [_read(lm, [row]) for row in rows])


def check_hidden_states(lm: LM, sample: CheckSample) -> ConsistencyCheck:
    """Layers read by hooks equal the plain model's `output_hidden_states`."""
    worst = dict.fromkeys(range(lm.layers + 1), 0.0)
    for row, ours in zip(sample.rows, sample.alone, strict=True):
        plain = lm.body(**_plain_call(lm, row), output_hidden_states=True)
        for layer in range(lm.layers):
            error = max_relative_error(ours.layers[layer], plain.hidden_states[layer])
            worst[layer] = max(worst[layer], error)
        # The last hidden state of plain transformers is after the final norm.
        end = max_relative_error(lm.final_norm(ours.layers[lm.layers]), plain.last_hidden_state)
        worst[lm.layers] = max(worst[lm.layers], end)
    layer = max(worst, key=worst.__getitem__)
    detail = f"worst at layer {layer} of 0..{lm.layers}"
    return _check_result(lm, "hooks = plain hidden states", worst[layer], detail)


def check_logits(lm: LM, sample: CheckSample) -> ConsistencyCheck:
    """unembed(final_norm(h[L])) and Phi f + bias equal the plain model's logits."""
    worst = 0.0
    phi, bias = lm.output_embedding
    for row, ours in zip(sample.rows, sample.alone, strict=True):
        plain = lm.module(**_plain_call(lm, row)).logits
        last = ours.layers[lm.layers]
        worst = max(worst, max_relative_error(lm.unembed(lm.final_norm(last)), plain))
        if not lm.anatomy.logit_operations:
            by_hand = torch.nn.functional.linear(lm.head_features(last), phi, bias)
            worst = max(worst, max_relative_error(by_hand, plain))
    return _check_result(lm, "unembed(final_norm(h[L])) = logits", worst)


def check_text_pairs(lm: LM) -> ConsistencyCheck:
    """A pair of texts with our token types gives the same states as in plain transformers."""
    one, two = SENTENCES[0], SENTENCES[2]
    rows = tokenize(lm, [one], pairs=[two]).rows
    row = lm.tokenizer(one, two, return_tensors="pt").to(lm.device)
    plain = lm.body(**row).last_hidden_state
    return _check_result(
        lm,
        "pairs = plain pairs",
        max_relative_error(lm.final_norm(_read(lm, rows).layers[lm.layers]), plain),
    )


def check_padding(lm: LM, sample: CheckSample, side: PaddingSide) -> ConsistencyCheck:
    """A sentence in a padded batch has the same states as alone."""
    ids, mask = _batch(lm, sample.rows, side)
    together = {layer: state[mask] for layer, state in collect_states(lm, ids, mask).layers.items()}
    error = stream_error(together, _join(sample.alone))
    return _check_result(lm, f"padding on the {side} changes nothing", error)


def check_batching(lm: LM, sample: CheckSample) -> ConsistencyCheck:
    """A sentence in a batch of equal length, in any order, has the same states as alone."""
    longer = sorted(sample.rows, key=len)[1:]
    rows = [row[: len(longer[0])] for row in longer]
    single = _join([_read(lm, [row]) for row in rows])
    together, turned = _read(lm, rows).layers, _read(lm, rows[::-1]).layers
    straight = {layer: state.flatten(0, 1) for layer, state in together.items()}
    backward = {layer: state.flip(0).flatten(0, 1) for layer, state in turned.items()}
    worst = max(stream_error(straight, single), stream_error(backward, single))
    return _check_result(lm, "batch and order change nothing", worst)


def check_determinism(lm: LM, sample: CheckSample) -> ConsistencyCheck:
    """The same sentence gives the same states twice."""
    again = _read(lm, [sample.rows[0]]).layers
    worst = max(max_relative_error(again[k], v) for k, v in sample.alone[0].layers.items())
    return _check_result(lm, "determinism", worst)


def check_early_stop(lm: LM, sample: CheckSample) -> ConsistencyCheck:
    """A forward pass stopped at a layer gives the same states as the full one."""
    ids, mask = _batch(lm, [sample.rows[0]])
    worst = 0.0
    for layer in _some_layers(lm):
        seen: list[Tensor] = []
        visit_layers(lm, ids, mask, [layer], lambda _, state, __, seen=seen: seen.append(state))  # type: ignore[misc]
        worst = max(worst, max_relative_error(seen[0], sample.alone[0].layers[layer]))
    return _check_result(lm, "early stop shows the same states", worst)


def check_run_from(lm: LM, sample: CheckSample) -> ConsistencyCheck:
    """The blocks after a layer turn its states into layer L."""
    rows = sample.rows[:2]
    ids, mask = _batch(lm, rows)
    full = collect_states(lm, ids, mask).layers
    worst = 0.0
    for layer in _some_layers(lm):
        ended = run_from(lm, full[layer], layer, mask)
        worst = max(worst, max_relative_error(ended[mask], full[lm.layers][mask]))
    return _check_result(lm, "run_from(h[l]) = h[L]", worst)


def check_block_parts(lm: LM, sample: CheckSample) -> ConsistencyCheck:
    """The parts of a block add up to its output as the layout says."""
    worst, where = 0.0, 1
    ids, mask = _batch(lm, [sample.rows[0]])
    for layer in sorted({1, lm.layers}):
        sites = [Site(layer, "block", "in"), Site(layer, "block", "out"),
                 *[Site(layer, part, side) for part in ("norm1", "attn", "norm2", "mlp")
                   if getattr(lm.anatomy, part) is not None for side in ("in", "out")]]  # fmt: skip
        got = collect_states(lm, ids, mask, [], sites).sites
        states = {f"{site.part}.{site.side}": state for site, state in got.items()}
        shared = {name.replace("norm1", "norm2"): value for name, value in states.items()}
        states = shared | states
        for equation in BLOCK_EQUATIONS[lm.anatomy.layout]:
            left, _, right = equation.partition(" = ")
            total = torch.stack([states[name] for name in right.split(" + ")]).sum(0)
            error = max_relative_error(states[left], total)
            worst, where = (error, layer) if error > worst else (worst, where)
    return _check_result(
        lm, "parts add up to the block", worst, f"layout {lm.anatomy.layout}, block {where}"
    )


def check_attention_sums(lm: LM, sample: CheckSample) -> ConsistencyCheck:
    """The attention weights of each token sum to 1 over the real tokens of its sentence."""
    ids, mask = _batch(lm, sample.rows)
    got = collect_states(lm, ids, mask, attention=True).attention
    worst = float("inf") if len(got) < lm.layers else 0.0
    for weights in got.values():
        on_real = (weights * mask[:, None, None, :]).sum(-1).transpose(1, 2)[mask]
        worst = max(worst, float((on_real - 1).abs().max()))
    # transformers always computes the softmax in float32.
    worst = 0.0 if worst < 1e-6 else worst
    return _check_result(
        lm, "attention sums to 1", worst, f"{len(got)} of {lm.layers} blocks return it"
    )


THOROUGH_CHECKS = (check_batching, check_determinism, check_early_stop, check_run_from)
"""Checks that apply to every model but are too slow to run each time one is opened."""


def max_relative_error(ours: Tensor, plain: Tensor) -> float:
    """The largest relative error of a vector along the last axis; infinite if the shapes differ or
    a value isn't finite."""
    if ours.shape != plain.shape:
        return float("inf")
    one, two = ours.double(), plain.double()
    worst = float(((one - two).norm(dim=-1) / two.norm(dim=-1).clamp(min=1e-12)).max())
    return float("inf") if math.isnan(worst) else worst


def stream_error(ours: dict[int, Tensor], plain: dict[int, Tensor]) -> float:
    """The largest error of a layer: root mean square over its tokens (tokens, d), each relative
    to the largest norm of that token up to there."""
    worst, scale = 0.0, None
    for layer in sorted(plain):
        norm = plain[layer].double().norm(dim=-1)
        scale = norm if scale is None else torch.maximum(norm, scale)
        error = (ours[layer].double() - plain[layer].double()).norm(dim=-1) / scale.clamp(min=1e-12)
        typical = float(error.square().mean().sqrt())
        worst = max(worst, float("inf") if math.isnan(typical) else typical)
    return worst


BLOCK_EQUATIONS: dict[str, tuple[str, ...]] = {
    "pre": (
        "norm1.in = block.in",
        "attn.in = norm1.out",
        "norm2.in = block.in + attn.out",
        "mlp.in = norm2.out",
        "block.out = block.in + attn.out + mlp.out",
    ),
    "parallel": (
        "norm1.in = block.in",
        "attn.in = norm1.out",
        "norm2.in = block.in",
        "mlp.in = norm2.out",
        "block.out = block.in + attn.out + mlp.out",
    ),
    "post": (
        "attn.in = block.in",
        "norm1.in = block.in + attn.out",
        "mlp.in = norm1.out",
        "norm2.in = norm1.out + mlp.out",
        "block.out = norm2.out",
    ),
    "inner": (
        "attn.in = block.in",
        "norm1.in = attn.out",
        "mlp.in = block.in + norm1.out",
        "norm2.in = mlp.out",
        "block.out = block.in + norm1.out + norm2.out",
    ),
}
"""What holds in a block of each layout; without a norm2 the mlp shares norm1."""


def _check_result(lm: LM, name: str, measured: float, detail: str = "") -> ConsistencyCheck:
    limit = LIMITS[lm.dtype]
    return ConsistencyCheck(name, measured <= limit, measured, limit, detail)


def _join(alone: list[ForwardStates]) -> dict[int, Tensor]:
    """All tokens of all sentences, layer by layer (tokens, d)."""
    return {layer: torch.cat([one.layers[layer][0] for one in alone]) for layer in alone[0].layers}


def _read(lm: LM, rows: list[list[int]]) -> ForwardStates:
    return collect_states(lm, *_batch(lm, rows))


def _batch(lm: LM, rows: list[list[int]], side: PaddingSide = "right") -> tuple[Tensor, Tensor]:
    ids, mask = pad(rows, lm.pad_id, side)
    return ids.to(lm.device), mask.to(lm.device)


def _plain_call(lm: LM, row: list[int]) -> dict[str, Any]:
    """The arguments of a plain transformers call for one sentence."""
    ids, mask = _batch(lm, [row])
    given = {"input_ids": ids, "attention_mask": mask.long()}
    return given | {k: v for k, v in forward_kwargs(lm, ids, mask).items() if k == "use_cache"}


def _some_layers(lm: LM) -> list[int]:
    return sorted({0, 1, lm.layers // 2, lm.layers - 1, lm.layers})
