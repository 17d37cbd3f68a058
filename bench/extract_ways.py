"""The ways of reading all layers: the bare model, ours, and the plain way."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bench.extract_setup import fresh_home
from cutaway.core.textset import TextSet
from cutaway.extract.activations import extract
from cutaway.extract.request import ExtractionRequest
from cutaway.models.batches import TokenBudget, batches_by_length
from cutaway.models.tokens import pad, tokenize

POOLS = ("last", "mean")
BUDGETS = (256, 512, 1024, 2048)
PLAIN_BATCH = 32
# The bare model's plans are tried on every SAMPLE-th batch of each.
SAMPLE = 8
Plan = list[list[int]]


@dataclass(frozen=True)
class Way:
    """A way with a name; `work` does it once and gives its seconds, one per thing it times."""

    work: Callable[[], dict[str, float]]
    every: int = 1
    """Takes part in each round, or in every second one when it is slow."""


def take_turns(ways: dict[str, Way], rounds: int) -> dict[str, list[float]]:
    """Seconds of everything timed, by name; the ways alternate within each round."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds):
        for way in ways.values():
            if number % way.every == 0:
                for name, value in way.work().items():
                    seconds[name].append(value)
    return dict(seconds)


def everything(lm: Any) -> ExtractionRequest:
    """All layers, last and mean, float32."""
    return ExtractionRequest(layers=tuple(range(lm.layers + 1)), pools=POOLS)


def ours(lm: Any, texts: TextSet) -> Callable[[], dict[str, float]]:
    """Extraction into an empty cache, then the same request again, with and without reading."""

    def work() -> dict[str, float]:
        ask, laps = everything(lm), Laps()
        with fresh_home():
            features = extract(lm, texts, ask)
            first = laps.lap()
            _read(features, ask)
            reading = laps.lap()
            again = extract(lm, texts, ask)
            second = laps.lap()
            _read(again, ask)
            rereading = laps.lap()
        assert again.stats is None, "the second request ran the model"
        return {
            "ours": first, "second": second, "ours_read": first + reading,
            "second_read": second + rereading,
        }  # fmt: skip

    return work


def _read(features: Any, ask: ExtractionRequest) -> None:
    for layer in ask.layers:
        for pool in ask.pools:
            features.column(layer, pool)


def plain(lm: Any, texts: TextSet) -> Callable[[], dict[str, float]]:
    """Batches of 32 in file order, all hidden states at once, pooled on the full tensors."""

    def work() -> dict[str, float]:
        laps, kept = Laps(), []
        with torch.inference_mode():
            for start in range(0, len(texts), PLAIN_BATCH):
                kept.append(_plain_batch(lm, list(texts.texts[start : start + PLAIN_BATCH])))
        for place in range(len(kept[0])):
            torch.cat([batch[place] for batch in kept])
        return {"plain": laps.lap()}

    return work


def _plain_batch(lm: Any, texts: list[str]) -> list[torch.Tensor]:
    batch = lm.tokenizer(texts, return_tensors="pt", padding=True, padding_side="right")
    hidden = lm.module(**batch, output_hidden_states=True, use_cache=False).hidden_states
    mask = batch["attention_mask"].unsqueeze(-1)
    last, place = mask.sum(1).squeeze(-1) - 1, torch.arange(len(texts))
    pooled = [h[place, last] for h in hidden]
    return pooled + [(h * mask).sum(1) / mask.sum(1) for h in hidden]


def bare(lm: Any, texts: TextSet) -> tuple[Callable[[], dict[str, float]], dict[str, float]]:
    """The model's own forward, no hooks, by the fastest plan; and the tokens/s of each plan."""
    rows = tokenize(lm, texts.texts).rows
    plans = _plans(rows)
    speeds = {name: _tried(lm, rows, plan) for name, plan in plans.items()}
    best = plans[max(speeds, key=lambda name: speeds[name])]

    def work() -> dict[str, float]:
        laps = Laps()
        _forwards(lm, rows, best)
        return {"bare": laps.lap()}

    return work, speeds


def _plans(rows: Sequence[Sequence[int]]) -> dict[str, Plan]:
    """Length-sorted batches: rows of equal length only (no padding), or at most 5 % of it."""
    lengths = [len(row) for row in rows]
    plans = {}
    for budget in BUDGETS:
        plans[f"equal lengths, {budget}"] = list(_equal(lengths, budget))
        sorted_ = batches_by_length(lengths, TokenBudget(fixed=budget))
        plans[f"near lengths, {budget}"] = [batch.rows.tolist() for batch, _ in sorted_]
    return plans


def _equal(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    groups: dict[int, list[int]] = defaultdict(list)
    for place, length in enumerate(lengths):
        groups[length].append(place)
    for length in sorted(groups, reverse=True):
        size = max(1, budget // length)
        yield from (groups[length][i : i + size] for i in range(0, len(groups[length]), size))


def _tried(lm: Any, rows: Sequence[Sequence[int]], plan: Plan) -> float:
    """Tokens per second on a sample of the plan's batches."""
    sample = plan[SAMPLE // 2 :: SAMPLE] or plan
    laps = Laps()
    _forwards(lm, rows, sample)
    return sum(len(rows[i]) for batch in sample for i in batch) / laps.lap()


def _forwards(lm: Any, rows: Sequence[Sequence[int]], plan: Plan) -> None:
    with torch.inference_mode():
        for batch in plan:
            # Causal models don't see padding on the right, so no mask is needed.
            ids, _ = pad([rows[i] for i in batch], lm.pad_id)
            lm.body(input_ids=ids, use_cache=False)


class Laps:
    """Seconds since it was made or last asked."""

    def __init__(self) -> None:
        self.last = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last lap."""
        now = time.perf_counter()
        passed, self.last = now - self.last, now
        return passed
