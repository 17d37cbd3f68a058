"""Verdicts of shortcut on simulated tokens of texts.

Null: all maps are equally good and all times alike, so no difference is true. Margin: the true
difference is exactly the margin below which two scores count as equal, so no absence is true. The
bounds of exits are compared with what many more tokens show.
"""

from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from bench.nulls.answers import Run
from bench.nulls.tally import Verdict, World
from cutaway.measure.conclusions import MARGIN
from cutaway.methods.shortcut.comparisons import (
    best_map_gain,
    conclude_over_texts,
    explained_variance_gain,
)
from cutaway.methods.shortcut.exit import tried_exit
from cutaway.methods.shortcut.maths.exit_simulation import (
    LayerConfidences,
    agreement_at,
    calibrate,
    exit_layers,
)
from cutaway.methods.shortcut.verdict import (
    eval_verdict,
    exit_verdict,
    fit_verdict,
    generate_verdict,
)

PER_TEXT, WIDTH, LAYERS = 4, 8, 6
NONE_CHOSEN = SimpleNamespace(seconds=0.0, processor_seconds=0.0)


def _texts(texts: int) -> NDArray[np.int64]:
    return np.repeat(np.arange(texts), PER_TEXT)


def fit_run(gain: float, texts: int) -> Run:
    """A map that explains `gain` more of the variance than the identity."""

    def run(seed: int) -> Verdict:
        rng, place = np.random.default_rng(seed), _texts(texts)
        target, shared = rng.standard_normal((2, len(place), WIDTH))
        errors = [
            np.sqrt(0.25) * shared + np.sqrt(0.05 + more) * rng.standard_normal(target.shape)
            for more in (0.0, gain)
        ]
        found = explained_variance_gain(target, target + errors[0], target + errors[1], place)
        return Verdict(tuple(fit_verdict(0.7, 0.7, 3, 6, conclude_over_texts(found, texts), texts)))

    return run


def eval_run(gain: float, texts: int) -> Run:
    """Two maps whose predictions are the model's more often by `gain` than the logit lens's."""

    def run(seed: int) -> Verdict:
        rng, place = np.random.default_rng(seed), _texts(texts)
        hard = 0.2 * rng.standard_normal(texts)[place]
        correct = {
            kind: rng.random(len(place)) < 0.5 + hard.clip(-0.4, 0.4) + more
            for kind, more in (("id", 0.0), ("mat", gain), ("tuned", gain))
        }
        precision = {kind: [float(one.mean())] * 2 for kind, one in correct.items()}
        best = max(("mat", "tuned"), key=lambda kind: precision[kind][0])
        gained = best_map_gain(correct, best, place)
        return Verdict(tuple(eval_verdict(precision, best, 2, gained, texts)))

    return run


def generate_run(gain: float, texts: int) -> Run:
    """Texts that take `gain` less time, as a log ratio, than with plain generate."""

    def run(seed: int) -> Verdict:
        rng = np.random.default_rng(seed)
        plain, ours = rng.normal([[0.0], [-gain]], 0.15, (2, texts))
        made = [
            SimpleNamespace(
                tokens=(1,), seconds=np.exp(b), processor_seconds=np.exp(b), accepted=0.5,
                plain_seconds=np.exp(a), plain_processor_seconds=np.exp(a), identical=True,
            )
            for a, b in zip(plain, ours, strict=True)
        ]  # fmt: skip
        sentences = generate_verdict(
            made, None, NONE_CHOSEN, layers=LAYERS, mode="draft", sample=False
        )
        return Verdict(tuple(sentences))

    return run


def calibrated_exit(seed: int) -> Verdict:
    """Confidences that say little about correctness; one token per text."""
    rng = np.random.default_rng(seed)
    found = calibrate(_confidences(rng, 600), 0.9, risk=0.05)
    many = _confidences(rng, 30_000)
    agreement = agreement_at(many, exit_layers(many, found.setting)).mean()
    sentences = exit_verdict(
        {"mat/max": found.saved}, None, [("mat", "max", found)], {}, layers=LAYERS, risk=0.05,
        positions=1,
    )  # fmt: skip
    return Verdict(tuple(sentences), float(agreement))


def chosen_exit(seed: int) -> Verdict:
    """The share of layers skipped by a setting that other texts chose."""
    rng = np.random.default_rng(seed)
    here = _confidences(rng, 800)
    tried = tried_exit({("mat", "max"): here}, _texts(200), 0.9)
    assert tried is not None
    many = _confidences(rng, 30_000)
    saved = 1 - exit_layers(many, tried.threshold).mean() / LAYERS
    sentences = exit_verdict(
        {"mat/max": tried.saved}, tried, [], {}, layers=LAYERS, risk=0.05, positions=PER_TEXT
    )
    return Verdict(tuple(sentences), float(saved))


def _confidences(rng: np.random.Generator, tokens: int) -> LayerConfidences:
    values = rng.random((LAYERS, tokens))
    correct = rng.random((LAYERS, tokens)) < 0.8 + 0.19 * values
    correct[-1] = True
    return LayerConfidences(values, correct, rng.integers(20, size=tokens), 20.0)


def worlds() -> list[World]:
    """Every simulated world of shortcut."""
    made = [
        World("confidences that say little", "shortcut", ("guarantee",), ("exit-calibrated",),
              calibrated_exit),
        World("a setting from other texts", "shortcut", ("interval",), ("exit-tried",),
              chosen_exit),
    ]  # fmt: skip
    for what, kind, make in (
        ("maps, explained variance", "fit-or-identity", fit_run),
        ("maps, predictions", "eval-or-lens", eval_run),
        ("times", "generate-faster", generate_run),
    ):
        made += [
            World(f"equal {what}, 60 texts", "shortcut", ("difference",), (kind,), make(0.0, 60)),
            World(f"{what} {MARGIN} apart, 2,000 texts", "shortcut", ("absence",), (kind,),
                  make(MARGIN, 2000)),
        ]  # fmt: skip
    return made
