"""Seconds of an early exit: what its parts cost, and what a real text takes with and without it.

Asking a layer costs a product with the whole vocabulary. Asking every layer, as the simulation
does, is therefore reckoned from the measured parts; a real exit asks at a few layers only, and is
run: with a cache, against the same loop without exits.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from cutaway.methods.shortcut.decode import DecodeResult, early_exit_decode, plain_decode
from cutaway.methods.shortcut.fit import logits_fn
from cutaway.methods.shortcut.maps import ShortcutMaps
from cutaway.methods.shortcut.maths.exit import ExitPoint
from cutaway.methods.shortcut.maths.fit import IDENTITY
from cutaway.methods.shortcut.plain_generate import stop_token_ids
from cutaway.methods.shortcut.segments import segmented
from cutaway.methods.shortcut.step_timing import measure_step_times
from cutaway.models.lm import LM

TIMED_TEXTS, TIMED_NEW_TOKENS, TIMED_PROMPT_TOKENS = 4, 24, 16
"""Texts that are written, tokens that each gets, tokens of a text that are its beginning."""

ExitCurves = Mapping[tuple[str, str], Sequence[ExitPoint]]


@dataclass(frozen=True)
class ExitRule:
    """When a token may leave: through which maps a layer is read, and how sure it must be."""

    kind: str
    lambda_: float


def default_exit_layers(lm: LM) -> list[int]:
    """Where a real exit asks unless told otherwise: half and three quarters of the way."""
    return sorted({n for n in (lm.layers // 2, 3 * lm.layers // 4) if 1 <= n < lm.layers})


def best_exit_rule(curves: ExitCurves, wished: float) -> ExitRule | None:
    """The paper's rule (gap) that saves most layers at the wished agreement; None without gap."""
    safe = [
        (point.layers.mean, kind, point.setting)
        for (kind, name), points in curves.items()
        for point in points
        if name == "gap" and point.agreement.mean >= wished
    ]
    return ExitRule(*min(safe)[1:]) if safe else None


def wall_clock(
    lm: LM,
    maps: ShortcutMaps,
    rows: Sequence[Sequence[int]],
    curves: ExitCurves,
    saved: float,
    wished: float,
) -> dict[str, float]:
    """Milliseconds per token: a block, a look, plain and early exit as reckoned and as run.

    `saved` is the share of layers that an exit skips at best when every layer is asked.
    """
    costs = measure_step_times(lm, counts=(1,))
    block, look = 1000 * costs.blocks[1] / lm.layers, 1000 * costs.head[1]
    plain, early = lm.layers * block + look, (1 - saved) * lm.layers * (block + look)
    found = {"block_ms": block, "look_ms": look, "plain_ms": plain, "exit_ms": early}
    rule = best_exit_rule(curves, wished)
    if rule is None or len(lm.blocks) != lm.layers or not default_exit_layers(lm):
        return found
    return found | time_early_exit(lm, maps, rows, rule)


@torch.inference_mode()
def time_early_exit(
    lm: LM, maps: ShortcutMaps, rows: Sequence[Sequence[int]], rule: ExitRule
) -> dict[str, float]:
    """A few texts written token by token, with exits and without, in turn."""
    exits, head, stops = default_exit_layers(lm), logits_fn(lm), stop_token_ids(lm)
    jumps = {n: maps.jump(n, lm.layers, rule.kind) for n in exits} | {lm.layers: IDENTITY}
    took, total = {"plain": 0.0, "exit": 0.0}, {"plain": 0, "exit": 0}
    layers = 0
    for row in rows[:TIMED_TEXTS]:
        ids = torch.tensor([list(row[:TIMED_PROMPT_TOKENS])], device=lm.device)
        room = min(TIMED_NEW_TOKENS, lm.context - ids.shape[1])
        if room < 2:
            continue
        with segmented(lm, []) as cut:
            way = partial(plain_decode, cut, ids, head, limit=room, stops=stops)
            found = _timed(took, "plain", way)
            total["plain"] += len(found.tokens)
        with segmented(lm, exits) as cut:
            way = partial(
                early_exit_decode,
                cut,
                ids,
                jumps,
                head,
                lambda_=rule.lambda_,
                limit=room,
                stops=stops,
            )
            found = _timed(took, "exit", way)
            total["exit"] += len(found.tokens)
            layers += sum(found.layers)
    if not total["exit"]:
        return {}
    return {
        "run_plain_ms": 1000 * took["plain"] / total["plain"],
        "run_exit_ms": 1000 * took["exit"] / total["exit"],
        "run_layers": layers / total["exit"],
        "run_lambda": rule.lambda_,
    }


def _timed(took: dict[str, float], name: str, work: Callable[[], DecodeResult]) -> DecodeResult:
    start = time.perf_counter()
    found = work()
    took[name] += time.perf_counter() - start
    return found
