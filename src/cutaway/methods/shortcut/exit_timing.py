"""The time an early exit takes: estimated from its parts, and measured on generated text.

Predicting from a layer takes a product with the whole vocabulary. Testing every layer, as the
simulation does, is therefore estimated from measured parts. A practical exit tests a few layers
only; it is run with a key-value cache, against the same loop without exits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from cutaway.methods.shortcut.decode import (
    DecodeResult,
    early_exit_decode,
    plain_decode,
    stop_token_ids,
)
from cutaway.methods.shortcut.maps import ShortcutMaps
from cutaway.methods.shortcut.maths.exit_simulation import ExitPoint
from cutaway.methods.shortcut.maths.fit import IDENTITY
from cutaway.methods.shortcut.predictions import logits_fn
from cutaway.methods.shortcut.segments import segmented
from cutaway.methods.shortcut.step_timing import TimeSpent, measure_step_times
from cutaway.models.lm import LM

TIMED_TEXTS, TIMED_NEW_TOKENS, TIMED_PROMPT_TOKENS = 4, 24, 16

ExitCurves = Mapping[tuple[str, str], Sequence[ExitPoint]]
"""By kind of map and confidence measure."""


@dataclass(frozen=True)
class ExitRule:
    """When a token may exit: the kind of map to predict with, and the threshold."""

    kind: str
    lambda_: float


def default_exit_layers(lm: LM) -> list[int]:
    """Half and three quarters of the way through the model."""
    return sorted({n for n in (lm.layers // 2, 3 * lm.layers // 4) if 1 <= n < lm.layers})


def best_exit_rule(curves: ExitCurves, agreement: float) -> ExitRule | None:
    """The paper's rule (gap) that saves most layers at this agreement; None without gap."""
    safe = [
        (point.layers.mean, kind, point.setting)
        for (kind, name), points in curves.items()
        for point in points
        if name == "gap" and point.agreement.mean >= agreement
    ]
    return ExitRule(*min(safe)[1:]) if safe else None


def exit_timing(
    lm: LM,
    maps: ShortcutMaps,
    rows: Sequence[Sequence[int]],
    curves: ExitCurves,
    saved: float,
    agreement: float,
) -> dict[str, float]:
    """Milliseconds of processor time per token: a block, a prediction, full model, early exit.

    `saved` is the share of layers that an exit skips at best when every layer is tested.
    """
    times = measure_step_times(lm, counts=(1,))
    block, predict = 1000 * times.blocks[1] / lm.layers, 1000 * times.head[1]
    plain, early = lm.layers * block + predict, (1 - saved) * lm.layers * (block + predict)
    timing = {"block_ms": block, "look_ms": predict, "plain_ms": plain, "exit_ms": early}
    rule = best_exit_rule(curves, agreement)
    if rule is None or len(lm.blocks) != lm.layers or not default_exit_layers(lm):
        return timing
    return timing | time_early_exit(lm, maps, rows, rule)


@torch.inference_mode()
def time_early_exit(
    lm: LM, maps: ShortcutMaps, rows: Sequence[Sequence[int]], rule: ExitRule
) -> dict[str, float]:
    """A few texts generated with and without exits, in turn."""
    exits, head, stops = default_exit_layers(lm), logits_fn(lm), stop_token_ids(lm)
    jumps = {n: maps.jump(n, lm.layers, rule.kind) for n in exits} | {lm.layers: IDENTITY}
    plain, early = _Timed(), _Timed()
    for row in rows[:TIMED_TEXTS]:
        ids = torch.tensor([list(row[:TIMED_PROMPT_TOKENS])], device=lm.device)
        limit = min(TIMED_NEW_TOKENS, lm.context - ids.shape[1])
        if limit < 2:
            continue
        with segmented(lm, []) as model:
            plain.time(partial(plain_decode, model, ids, head, limit=limit, stops=stops))
        with segmented(lm, exits) as model:
            early.time(
                partial(
                    early_exit_decode, model, ids, jumps, head, lambda_=rule.lambda_, limit=limit,
                    stops=stops,
                )
            )  # fmt: skip
    if not early.tokens:
        return {}
    return {
        "run_plain_ms": 1000 * plain.watch.seconds / plain.tokens,
        "run_exit_ms": 1000 * early.watch.seconds / early.tokens,
        "run_plain_processor_ms": 1000 * plain.watch.processor_seconds / plain.tokens,
        "run_exit_processor_ms": 1000 * early.watch.processor_seconds / early.tokens,
        "run_layers": early.layers / early.tokens,
        "run_lambda": rule.lambda_,
    }


@dataclass
class _Timed:
    """Time, tokens and layers of several decoded texts."""

    watch: TimeSpent = field(default_factory=TimeSpent)
    tokens: int = 0
    layers: int = 0

    def time(self, decode: Callable[[], DecodeResult]) -> None:
        with self.watch:
            result = decode()
        self.tokens += len(result.tokens)
        self.layers += sum(result.layers)
