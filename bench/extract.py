"""Reading all layers: ours against the bare model and against the plain way, in one process."""

import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.extract_setup import BUNDLED, fresh_home, opened, sentences
from bench.extract_ways import Way, bare, everything, ours, plain, take_turns
from bench.report import row, spread, told
from cutaway.core.textset import TextSet
from cutaway.extract.activations import extract
from cutaway.models.batches import TokenBudget
from cutaway.models.check import check
from cutaway.models.tokens import tokenize

ROWS = 400
# The random model is there to show a second shape; half of the rows show it.
SHARES = {BUNDLED: 1.0, "gpt2-sized": 0.5}
COMPARED = 24


def run(quick: bool, rows: int | None = None, rounds: int = 5) -> dict[str, Any]:
    """Throughput, second request and equality, for both models."""
    rows, rounds = (24, 1) if quick else (rows or ROWS, rounds)
    texts = sentences(rows)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="cutaway-bench-models-") as work:
        for name, share in SHARES.items():
            some = texts.take(range(max(16, int(share * len(texts)))))
            found[name] = _one(opened(name, Path(work)), some, rounds)
    return {
        "title": "Reading all layers",
        "text": _said(texts, rounds, found),
        "table": [line for name in found for line in _lines(name, found[name])],
        "measured": found,
    }


def _one(lm: Any, texts: TextSet, rounds: int) -> dict[str, Any]:
    """All figures of one model."""
    tokens = sum(map(len, tokenize(lm, texts.texts).rows))
    _warm(lm, texts)
    forward, plans = bare(lm, texts)
    ways = {
        "bare": Way(forward),
        "ours": Way(ours(lm, texts)),
        "plain": Way(plain(lm, texts), every=2),
    }
    seconds = take_turns(ways, rounds)
    return {
        "rows": len(texts),
        "tokens": tokens,
        "rounds": {name: len(values) for name, values in seconds.items()},
        "parameters": lm.parameters,
        "threads": torch.get_num_threads(),
        "plans_tokens_per_second": {k: round(v, 1) for k, v in plans.items()},
        "seconds": {name: spread(values) for name, values in seconds.items()},
        "difference": _difference(lm, _alike(lm, texts)),
        "padding": _padding(lm),
    }


def _warm(lm: Any, texts: TextSet) -> None:
    with fresh_home():
        extract(lm, texts.take(range(8)), everything(lm))


def _difference(lm: Any, texts: TextSet) -> float:
    """Largest relative difference between one at a time, and many at once in another order."""
    order = np.random.default_rng(0).permutation(len(texts))
    ask, back, gaps = everything(lm), torch.as_tensor(np.argsort(order)), []
    with fresh_home():
        alone = extract(lm, texts, ask, budget=TokenBudget(fixed=1))
        many = extract(lm, texts.take(order), ask, budget=TokenBudget(fixed=1024))
        for layer in ask.layers:
            for pool in ask.pools:
                one, other = alone.column(layer, pool), many.column(layer, pool)[back]
                gaps.append((one - other).abs().max() / one.abs().max())
    # A tensor's max keeps NaN, Python's would lose it.
    return float(torch.stack(gaps).max())


def _padding(lm: Any) -> float:
    """Largest difference that padding on the left or right makes, by the model's trust report."""
    return max(one.measured for one in check(lm).checks if "padding" in one.name)


def _alike(lm: Any, texts: TextSet) -> TextSet:
    """Texts of middling, nearly equal length: those that really share a batch."""
    lengths = [len(ids) for ids in tokenize(lm, texts.texts).rows]
    start = max(0, (len(texts) - COMPARED) // 2)
    return texts.take(np.argsort(lengths, kind="stable")[start : start + COMPARED])


def _lines(name: str, found: dict[str, Any]) -> list[dict[str, Any]]:
    """The table's rows for one model."""
    seconds = found["seconds"]
    speeds = {way: _speed(found["tokens"], seconds[way]) for way in ("bare", "ours", "plain")}
    to_bare = statistics.median(
        b / o for b, o in zip(seconds["bare"]["all"], seconds["ours"]["all"], strict=True)
    )
    to_plain = seconds["plain"]["median"] / seconds["ours"]["median"]
    again = seconds["ours_read"]["median"] / seconds["second_read"]["median"]
    asked = seconds["ours"]["median"] / seconds["second"]["median"]
    shown = {way: told(speed, "tokens/s") for way, speed in speeds.items()}
    gap, padding = found["difference"], found["padding"]
    return [
        row(f"{name}: against the bare forward", shown["ours"], shown["bare"], to_bare,
            ">= 0.9x", to_bare >= 0.9),
        row(f"{name}: against the plain way", shown["ours"], shown["plain"], to_plain,
            ">= 2x", to_plain >= 2),
        row(f"{name}: second request, every column read", told(seconds["second_read"], "s"),
            told(seconds["ours_read"], "s (first)"), again, ">= 100x", again >= 100),
        row(f"{name}: second request, nothing read yet", told(seconds["second"], "s"),
            told(seconds["ours"], "s (first)"), asked),
        row(f"{name}: one at a time against many, shuffled", f"{gap:.1e} (relative)",
            bar="<= 1e-5", met=gap <= 1e-5),
        row(f"{name}: padded left, right or not", f"{padding:.1e} (relative)",
            bar="<= 1e-5", met=padding <= 1e-5),
    ]  # fmt: skip


def _speed(tokens: int, seconds: dict[str, Any]) -> dict[str, float]:
    """Tokens per second; the slowest round gives the smallest."""
    return {
        "median": tokens / seconds["median"],
        "min": tokens / seconds["max"],
        "max": tokens / seconds["min"],
    }


def _said(texts: TextSet, rounds: int, found: dict[str, Any]) -> list[str]:
    """What was run, in words."""
    sizes = "; ".join(
        f"{name}: {f['rows']:,} sentences, {f['tokens']:,} tokens, {f['parameters'] / 1e6:.0f} M "
        f"parameters, {f['threads']} threads"
        for name, f in found.items()
    )
    return [
        f"Sentences of `{texts.name}`; all layers, last and mean pooling, float32, {rounds} rounds "
        f"(the plain way in every second one). {sizes}.",
        "The bare forward is the model without head and hooks over the same tokens, in "
        "length-sorted batches (equal lengths without padding, or at most 5 % padding; the "
        "fastest of 8 plans). It doesn't tokenise and keeps nothing; ours includes tokenising, "
        "pooling, checksums and writing to disk. The plain way is a batch of 32 in file order "
        "with `output_hidden_states=True` and pooling on the full tensors, kept in memory. The "
        "ratio to the bare forward is the median of the rounds' ratios.",
        "The random model has gpt2's shape and a vocabulary of 49,152. A longer run "
        "is `python -m bench --only extract --rows 2000`.",
    ]
