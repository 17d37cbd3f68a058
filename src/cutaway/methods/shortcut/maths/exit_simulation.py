"""Early exit, simulated: every threshold and every confidence from one pass over the layers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, log

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from cutaway.core.errors import BadData, BadSpec, Mismatch
from cutaway.measure.intervals import Interval, corrected_t, wilson
from cutaway.methods.shortcut.maths.lens import LayerPredictions

Floats = NDArray[np.float64]

# The paper's grid. 1.112 is above every possible confidence, -1.112 below.
LAMBDAS = (-1.112, *(round(0.1 * step, 1) for step in range(11)), 1.112)
# Finer near 1, where curves bend, and beyond: lambdas of 1 to 1.11 need a confidence of 0.9 to 1,
# and high agreement is reached there.
FINE_LAMBDAS = tuple(sorted({*LAMBDAS, *(round(0.9 + 0.01 * step, 2) for step in range(22))}))

CONFIDENCES: dict[str, Callable[[LayerPredictions, int], Floats]] = {
    "gap": lambda predicted, vocab: _array(predicted.gap),
    "max": lambda predicted, vocab: _array(predicted.confidence),
    "entropy": lambda predicted, vocab: 1 - _array(predicted.entropy) / log(max(vocab, 2)),
}
"""Confidence of a layer, from 0 to 1: gap of the top two probabilities, the top, 1 - entropy."""


def _array(tensor: "object") -> Floats:
    return np.asarray(tensor, dtype=np.float64)


@dataclass(frozen=True)
class LayerConfidences:
    """The confidence of each layer 1..L at each token, and whether its prediction is correct.

    The last layer is the full model: its prediction is correct, and tokens always exit there.
    """

    values: Floats
    """(layer, n), layers 1..L."""
    correct: NDArray[np.bool_]
    """(layer, n): the layer's prediction is the full model's."""
    positions: NDArray[np.int64]
    """(n,) token positions, 0-based."""
    mean_length: float
    """Mean length of the texts, the N of the paper's rule."""

    def __post_init__(self) -> None:
        """Mismatch unless all arrays have the same layers and tokens."""
        shape = self.values.shape
        if shape != self.correct.shape or shape[1:] != self.positions.shape:
            raise Mismatch(
                f"Confidences need the same layers and tokens throughout, got confidences {shape}, "
                f"correct {self.correct.shape}, positions {self.positions.shape}."
            )
        if self.values.size == 0:
            raise BadData("No tokens to simulate an early exit on: give at least one text.")

    def take(self, tokens: NDArray[np.int64]) -> "LayerConfidences":
        """Some of the tokens."""
        arrays = (self.values[:, tokens], self.correct[:, tokens], self.positions[tokens])
        return LayerConfidences(*arrays, self.mean_length)


@dataclass(frozen=True)
class ExitPoint:
    """The result of one threshold: mean layers processed, and agreement with the full model."""

    setting: float
    layers: Interval
    agreement: Interval


def exit_threshold(
    lambda_: float, positions: NDArray[np.int64] | int, mean_length: float
) -> NDArray[np.float64] | float:
    """The confidence needed to exit: 0.9 lambda + 0.1 exp(-4 t / N), stricter for early tokens."""
    return 0.9 * lambda_ + 0.1 * np.exp(-4.0 * np.asarray(positions) / mean_length)


def exit_layers(confidences: LayerConfidences, lambda_: float) -> NDArray[np.int64]:
    """The first confident layer of each token, counted from 1; the last layer if there is none."""
    confident = confidences.values > exit_threshold(
        lambda_, confidences.positions, confidences.mean_length
    )
    confident[-1] = True
    return confident.argmax(axis=0).astype(np.int64) + 1


def agreement_at(confidences: LayerConfidences, layers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the prediction at each token's exit layer is the full model's."""
    return confidences.correct[layers - 1, np.arange(len(layers))]


def exit_curve(
    confidences: LayerConfidences, lambdas: Sequence[float] = LAMBDAS
) -> list[ExitPoint]:
    """Mean layers and agreement for every lambda."""
    return [_exit_point(lam, confidences, exit_layers(confidences, lam)) for lam in lambdas]


def fixed_exit_curve(confidences: LayerConfidences) -> list[ExitPoint]:
    """Mean layers and agreement when every token exits at the same layer 1..L."""
    count, tokens = confidences.values.shape
    return [
        _exit_point(float(layer), confidences, np.full(tokens, layer))
        for layer in range(1, count + 1)
    ]


def _exit_point(
    setting: float, confidences: LayerConfidences, layers: NDArray[np.int64]
) -> ExitPoint:
    agree = agreement_at(confidences, layers)
    # Tokens are independent, so the plain t interval: nothing overlaps.
    mean = corrected_t(layers, n_train=1, n_test=0)
    return ExitPoint(setting, mean, wilson(float(agree.sum()), len(agree)))


@dataclass(frozen=True)
class CalibratedExit:
    """A threshold with a guarantee: for 1 - risk of all held-out samples, agreement >= wished."""

    setting: float
    wished: float
    risk: float
    layers: Interval
    """Mean layers processed on the held-out tokens."""
    agreement: Interval
    """Agreement measured on the held-out tokens."""
    layers_all: int

    @property
    def tokens(self) -> int:
        """The number of held-out tokens."""
        return self.agreement.n

    @property
    def needed(self) -> int:
        """Tokens needed to guarantee any exit, if all of them agree with the full model."""
        return ceil(log(self.risk) / log(self.wished))

    @property
    def saved(self) -> Interval:
        """The share of layers that are skipped."""
        return saved_share(self.layers, self.layers_all)

    def plain(self) -> dict[str, float]:
        """Plain values; intervals as `_low` and `_high`."""
        plain: dict[str, float] = {
            "setting": self.setting, "wished": self.wished, "risk": self.risk,
            "tokens": self.tokens, "layers_all": self.layers_all,
        }  # fmt: skip
        for name in ("layers", "agreement", "saved"):
            one: Interval = getattr(self, name)
            plain |= {name: one.mean, f"{name}_low": one.low, f"{name}_high": one.high}
        return plain


def saved_share(layers: Interval, layers_all: int) -> Interval:
    """The share of layers that are skipped when this many are processed."""
    mean, low, high = (1 - used / layers_all for used in (layers.mean, layers.high, layers.low))
    return Interval(mean, low, high, layers.level, layers.n)


NO_EXIT_LAMBDA = 1.112
"""The lambda that no confidence reaches: every layer runs."""
CALIBRATION_LAMBDAS = (*(round(1.11 - 0.01 * step, 2) for step in range(112)), LAMBDAS[0])
"""The lambdas that a calibration tests, from the strictest to the loosest."""
ALL_LAMBDAS = tuple(sorted({*FINE_LAMBDAS, *CALIBRATION_LAMBDAS}))
"""All of them: the best saving is then never below what a calibration guarantees."""


def calibrate(
    confidences: LayerConfidences,
    wished: float,
    *,
    risk: float = 0.05,
    lambdas: Sequence[float] = CALIBRATION_LAMBDAS,
) -> CalibratedExit:
    """The loosest lambda whose agreement is at least `wished`, except with probability `risk`.

    Learn then test (Angelopoulos et al. 2021): lambdas are tested from the strictest on, each
    with an exact binomial test of "the agreement is below `wished`", until one is not rejected.
    Testing in a fixed order needs no correction for the number of tests. The guarantee holds for
    tokens drawn independently, one per text, from the same source as future ones.
    """
    if not 0 < wished < 1 or not 0 < risk < 1:
        raise BadSpec(f"agreement and risk must be between 0 and 1, got {wished!r} and {risk!r}.")
    # Without exits the predictions are the full model's: that needs no test.
    chosen = NO_EXIT_LAMBDA
    for lam in sorted((one for one in lambdas if one < NO_EXIT_LAMBDA), reverse=True):
        agree = agreement_at(confidences, exit_layers(confidences, lam))
        # The probability of this many agreements if the true rate were exactly `wished`.
        if binom.sf(agree.sum() - 1, len(agree), wished) > risk:
            break
        chosen = lam
    return _calibrated(confidences, chosen, wished, risk)


def _calibrated(
    confidences: LayerConfidences, lambda_: float, wished: float, risk: float
) -> CalibratedExit:
    point = _exit_point(lambda_, confidences, exit_layers(confidences, lambda_))
    return CalibratedExit(
        setting=lambda_,
        wished=wished,
        risk=risk,
        layers=point.layers,
        agreement=point.agreement,
        layers_all=len(confidences.values),
    )
