"""The laws a model must hold before anything read off it is believed.

Each compares what Cutaway reads with what plain transformers computes for the same weights, on
the same short sentences.

Two measures, both per token, so that a huge token hides nothing in the others. Where the same
arithmetic must come out, the largest |ours - plain| / |plain|. Where batches differ, kernels sum
in another order, and sound models blow such rounding up at single tokens (tenfold and more in
SmolLM2, at the blank before a number); there the root mean square over all tokens counts, each
relative to the largest norm its own stream has had so far. A wrong position, mask or norm moves
tokens by a tenth and more, so one wrong token in a hundred still stands out a thousandfold.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from cutaway.models.lm import LM
from cutaway.models.read import (
    ForwardStates,
    collect_states,
    forward_kwargs,
    run_from,
    visit_layers,
)
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
    """One law, measured on one model."""

    name: str
    passed: bool
    measured: float
    limit: float
    detail: str = ""


@dataclass(frozen=True)
class CheckSample:
    """Short real sentences, and what each looks like alone and unpadded."""

    rows: list[list[int]]
    alone: list[ForwardStates]


def check_sample(lm: LM, sentences: Sequence[str] = SENTENCES) -> CheckSample:
    """The sentences' tokens and every layer of each, read alone."""
    rows = tokenize(lm, sentences, limit=min(lm.context, 32)).rows
    return CheckSample(rows, [_read(lm, [row]) for row in rows])


def check_hidden_states(lm: LM, drawn: CheckSample) -> ConsistencyCheck:
    """Layers read by hooks are the plain model's `output_hidden_states`."""
    worst = dict.fromkeys(range(lm.layers + 1), 0.0)
    for row, ours in zip(drawn.rows, drawn.alone, strict=True):
        plain = lm.body(**_plain_call(lm, row), output_hidden_states=True)
        for layer in range(lm.layers):
            error = max_relative_error(ours.layers[layer], plain.hidden_states[layer])
            worst[layer] = max(worst[layer], error)
        # The last hidden state of plain transformers has gone through the final norm.
        end = max_relative_error(lm.final_norm(ours.layers[lm.layers]), plain.last_hidden_state)
        worst[lm.layers] = max(worst[lm.layers], end)
    layer = max(worst, key=worst.__getitem__)
    detail = f"worst at layer {layer} of 0..{lm.layers}"
    return _check_result(lm, "hooks = plain hidden states", worst[layer], detail)


def check_logits(lm: LM, drawn: CheckSample) -> ConsistencyCheck:
    """unembed(final_norm(h[L])) and Phi f + bias are the plain model's logits."""
    worst = 0.0
    phi, bias = lm.output_embedding
    for row, ours in zip(drawn.rows, drawn.alone, strict=True):
        plain = lm.module(**_plain_call(lm, row)).logits
        last = ours.layers[lm.layers]
        worst = max(worst, max_relative_error(lm.unembed(lm.final_norm(last)), plain))
        if not lm.anatomy.logit_operations:
            by_hand = torch.nn.functional.linear(lm.head_features(last), phi, bias)
            worst = max(worst, max_relative_error(by_hand, plain))
    return _check_result(lm, "unembed(final_norm(h[L])) = logits", worst)


def check_text_pairs(lm: LM) -> ConsistencyCheck:
    """Two texts, tokenised and typed by us, read as plain transformers reads them."""
    one, two = SENTENCES[0], SENTENCES[2]
    rows = tokenize(lm, [one], pairs=[two]).rows
    row = lm.tokenizer(one, two, return_tensors="pt").to(lm.device)
    plain = lm.body(**row).last_hidden_state
    return _check_result(
        lm, "pairs = plain pairs", max_relative_error(_final_states(lm, rows), plain)
    )


def check_padding(lm: LM, drawn: CheckSample, side: PaddingSide) -> ConsistencyCheck:
    """A sentence in a padded batch reads as it does alone."""
    ids, mask = _batch(lm, drawn.rows, side)
    together = {layer: state[mask] for layer, state in collect_states(lm, ids, mask).layers.items()}
    error = stream_error(together, _join(drawn.alone))
    return _check_result(lm, f"padding on the {side} changes nothing", error)


def check_batching(lm: LM, drawn: CheckSample) -> ConsistencyCheck:
    """A sentence among others of its length, in any order, reads as it does alone."""
    longer = sorted(drawn.rows, key=len)[1:]
    rows = [row[: len(longer[0])] for row in longer]
    single = _join([_read(lm, [row]) for row in rows])
    together, turned = _read(lm, rows).layers, _read(lm, rows[::-1]).layers
    straight = {layer: state.flatten(0, 1) for layer, state in together.items()}
    backward = {layer: state.flip(0).flatten(0, 1) for layer, state in turned.items()}
    worst = max(stream_error(straight, single), stream_error(backward, single))
    return _check_result(lm, "batch and order change nothing", worst)


def check_determinism(lm: LM, drawn: CheckSample) -> ConsistencyCheck:
    """The same sentence twice gives the same numbers."""
    again = _read(lm, [drawn.rows[0]]).layers
    worst = max(max_relative_error(again[k], v) for k, v in drawn.alone[0].layers.items())
    return _check_result(lm, "determinism", worst)


def check_early_stop(lm: LM, drawn: CheckSample) -> ConsistencyCheck:
    """A forward stopped at a layer shows what the whole forward shows there."""
    ids, mask = _batch(lm, [drawn.rows[0]])
    worst = 0.0
    for layer in _some_layers(lm):
        seen: list[Tensor] = []
        visit_layers(lm, ids, mask, [layer], lambda _, state, __, seen=seen: seen.append(state))  # type: ignore[misc]
        worst = max(worst, max_relative_error(seen[0], drawn.alone[0].layers[layer]))
    return _check_result(lm, "early stop shows the same states", worst)


def check_run_from(lm: LM, drawn: CheckSample) -> ConsistencyCheck:
    """The blocks behind a layer turn its state into layer L."""
    rows = drawn.rows[:2]
    ids, mask = _batch(lm, rows)
    whole = collect_states(lm, ids, mask).layers
    worst = 0.0
    for layer in _some_layers(lm):
        ended = run_from(lm, whole[layer], layer, mask)
        worst = max(worst, max_relative_error(ended[mask], whole[lm.layers][mask]))
    return _check_result(lm, "run_from(h[l]) = h[L]", worst)


def check_block_parts(lm: LM, drawn: CheckSample) -> ConsistencyCheck:
    """What attention and mlp add to the stream is what the block does, as the layout says."""
    worst, where = 0.0, 1
    ids, mask = _batch(lm, [drawn.rows[0]])
    for layer in sorted({1, lm.layers}):
        sites = [Site(layer, "block", "in"), Site(layer, "block", "out"),
                 *[Site(layer, part, side) for part in ("norm1", "attn", "norm2", "mlp")
                   if getattr(lm.anatomy, part) is not None for side in ("in", "out")]]  # fmt: skip
        got = collect_states(lm, ids, mask, [], sites).sites
        seen = {f"{site.part}.{site.side}": state for site, state in got.items()}
        for ours, plain in BLOCK_EQUATIONS[lm.anatomy.layout](seen):
            error = max_relative_error(ours, plain)
            worst, where = (error, layer) if error > worst else (worst, where)
    return _check_result(
        lm, "parts add up to the block", worst, f"layout {lm.anatomy.layout}, block {where}"
    )


def check_attention_sums(lm: LM, drawn: CheckSample) -> ConsistencyCheck:
    """Each token spreads one unit of attention over the real tokens of its own sentence."""
    ids, mask = _batch(lm, drawn.rows)
    got = collect_states(lm, ids, mask, attention=True).attention
    worst = float("inf") if len(got) < lm.layers else 0.0
    for weights in got.values():
        on_real = (weights * mask[:, None, None, :]).sum(-1).transpose(1, 2)[mask]
        worst = max(worst, float((on_real - 1).abs().max()))
    # transformers computes the softmax in single precision whatever the model's.
    worst = 0.0 if worst < 1e-6 else worst
    return _check_result(
        lm, "attention sums to 1", worst, f"{len(got)} of {lm.layers} blocks show it"
    )


def max_relative_error(ours: Tensor, plain: Tensor) -> float:
    """The largest relative error of a vector along the last axis; infinite where either isn't
    finite or the shapes differ."""
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


def _pre(s: dict[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    middle = s["block.in"] + s["attn.out"]
    return [
        (s["norm1.in"], s["block.in"]),
        (s["attn.in"], s["norm1.out"]),
        (s["norm2.in"], middle),
        (s["mlp.in"], s["norm2.out"]),
        (s["block.out"], middle + s["mlp.out"]),
    ]


def _parallel(s: dict[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    return [
        (s["norm1.in"], s["block.in"]),
        (s["attn.in"], s["norm1.out"]),
        (s.get("norm2.in", s["norm1.in"]), s["block.in"]),
        (s["mlp.in"], s.get("norm2.out", s["norm1.out"])),
        (s["block.out"], s["block.in"] + s["attn.out"] + s["mlp.out"]),
    ]


def _post(s: dict[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    return [
        (s["attn.in"], s["block.in"]),
        (s["norm1.in"], s["block.in"] + s["attn.out"]),
        (s["mlp.in"], s["norm1.out"]),
        (s["norm2.in"], s["norm1.out"] + s["mlp.out"]),
        (s["block.out"], s["norm2.out"]),
    ]


def _inner(s: dict[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    middle = s["block.in"] + s["norm1.out"]
    return [
        (s["attn.in"], s["block.in"]),
        (s["norm1.in"], s["attn.out"]),
        (s["mlp.in"], middle),
        (s["norm2.in"], s["mlp.out"]),
        (s["block.out"], middle + s["norm2.out"]),
    ]


BLOCK_EQUATIONS: dict[str, Callable[[dict[str, Tensor]], list[tuple[Tensor, Tensor]]]] = {
    "pre": _pre,
    "parallel": _parallel,
    "post": _post,
    "inner": _inner,
}


def _check_result(lm: LM, name: str, measured: float, detail: str = "") -> ConsistencyCheck:
    limit = LIMITS[lm.dtype]
    return ConsistencyCheck(name, measured <= limit, measured, limit, detail)


def _join(alone: list[ForwardStates]) -> dict[int, Tensor]:
    """All tokens of all sentences, layer by layer (tokens, d)."""
    return {layer: torch.cat([one.layers[layer][0] for one in alone]) for layer in alone[0].layers}


def _final_states(lm: LM, rows: list[list[int]]) -> Tensor:
    return lm.final_norm(_read(lm, rows).layers[lm.layers])


def _read(lm: LM, rows: list[list[int]]) -> ForwardStates:
    return collect_states(lm, *_batch(lm, rows))


def _batch(lm: LM, rows: list[list[int]], side: PaddingSide = "right") -> tuple[Tensor, Tensor]:
    ids, mask = pad(rows, lm.pad_id, side)
    return ids.to(lm.device), mask.to(lm.device)


def _plain_call(lm: LM, row: list[int]) -> dict[str, Any]:
    """The call a user of plain transformers would make for one sentence."""
    ids, mask = _batch(lm, [row])
    given = {"input_ids": ids, "attention_mask": mask.long()}
    return given | {k: v for k, v in forward_kwargs(lm, ids, mask).items() if k == "use_cache"}


def _some_layers(lm: LM) -> list[int]:
    return sorted({0, 1, lm.layers // 2, lm.layers - 1, lm.layers})
