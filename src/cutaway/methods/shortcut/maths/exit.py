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

# The paper's grid. 1.112 is more than any confidence can reach, -1.112 less than any has.
LAMBDAS = (-1.112, *(round(0.1 * step, 1) for step in range(11)), 1.112)
# Finer near 1, where curves bend, and on from there: a sureness of 0.9 to 1 is asked for by lambdas
# of 1 to 1.11, and a high agreement lies there.
FINE_LAMBDAS = tuple(sorted({*LAMBDAS, *(round(0.9 + 0.01 * step, 2) for step in range(22))}))

CONFIDENCES: dict[str, Callable[[LayerPredictions, int], Floats]] = {
    "gap": lambda reading, vocab: _array(reading.gap),
    "max": lambda reading, vocab: _array(reading.confidence),
    "entropy": lambda reading, vocab: 1 - _array(reading.entropy) / log(max(vocab, 2)),
}
"""How sure a layer is, from 0 to 1: top two probabilities' gap, the top one, 1 - entropy."""


def _array(tensor: "object") -> Floats:
    return np.asarray(tensor, dtype=np.float64)


@dataclass(frozen=True)
class LayerConfidences:
    """What each layer 1..L says about each token: how sure it is, and whether it is right.

    The last layer is the model itself: its answer counts as right and always as sure enough.
    """

    sure: Floats
    """(layer, n), layers 1..L."""
    right: NDArray[np.bool_]
    """(layer, n): the layer's guess is the full model's."""
    places: NDArray[np.int64]
    """(n,) token positions, 0-based."""
    mean_length: float
    """Mean length of the texts, the N of the paper's rule."""

    def __post_init__(self) -> None:
        """Mismatch unless all parts speak of the same layers and tokens."""
        if self.sure.shape != self.right.shape or self.sure.shape[1:] != self.places.shape:
            raise Mismatch(
                f"An exit track needs the same layers and tokens throughout, got confidences "
                f"{self.sure.shape}, answers {self.right.shape}, positions {self.places.shape}."
            )
        if self.sure.size == 0:
            raise BadData("No tokens to simulate an early exit on: give at least one text.")

    def take(self, tokens: NDArray[np.int64]) -> "LayerConfidences":
        """The chosen tokens only."""
        kept = (self.sure[:, tokens], self.right[:, tokens], self.places[tokens])
        return LayerConfidences(*kept, self.mean_length)


@dataclass(frozen=True)
class ExitPoint:
    """One threshold's result: layers processed on average, and how often the answer stays."""

    setting: float
    layers: Interval
    agreement: Interval


def exit_threshold(
    lambda_: float, places: NDArray[np.int64] | int, mean_length: float
) -> NDArray[np.float64] | float:
    """How sure a layer must be: 0.9 lambda + 0.1 exp(-4 t / N), stricter for early tokens."""
    return 0.9 * lambda_ + 0.1 * np.exp(-4.0 * np.asarray(places) / mean_length)


def exit_layers(track: LayerConfidences, lambda_: float) -> NDArray[np.int64]:
    """The first layer sure enough, per token, counted from 1; the last layer if none is."""
    enough = track.sure > exit_threshold(lambda_, track.places, track.mean_length)
    enough[-1] = True
    return enough.argmax(axis=0).astype(np.int64) + 1


def agreement_at(track: LayerConfidences, layers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the answer at each token's exit layer is the full model's."""
    return track.right[layers - 1, np.arange(len(layers))]


def exit_curve(track: LayerConfidences, lambdas: Sequence[float] = LAMBDAS) -> list[ExitPoint]:
    """Mean layers and agreement for every lambda."""
    return [_exit_point(lam, track, exit_layers(track, lam)) for lam in lambdas]


def fixed_exit_curve(track: LayerConfidences) -> list[ExitPoint]:
    """Mean layers and agreement when every token exits at the same layer 1..L."""
    count, tokens = track.sure.shape
    return [
        _exit_point(float(layer), track, np.full(tokens, layer)) for layer in range(1, count + 1)
    ]


def _exit_point(setting: float, track: LayerConfidences, layers: NDArray[np.int64]) -> ExitPoint:
    agree = agreement_at(track, layers)
    # Tokens are independent, so the plain t interval: nothing overlaps.
    mean = corrected_t(layers, n_train=1, n_test=0)
    return ExitPoint(setting, mean, wilson(float(agree.sum()), len(agree)))


@dataclass(frozen=True)
class CalibratedExit:
    """A threshold with a promise: in 1 - risk of all held-out samples, agreement >= wished."""

    setting: float
    wished: float
    risk: float
    layers: float
    """Mean layers processed on the held-out tokens."""
    agreement: float
    """Agreement seen on the held-out tokens."""
    tokens: int
    layers_all: int

    @property
    def needed(self) -> int:
        """Tokens that a perfect record needs before anything but all layers can be promised."""
        return ceil(log(self.risk) / log(self.wished))

    @property
    def saved(self) -> float:
        """The share of layers that are not run."""
        return 1 - self.layers / self.layers_all


NO_EXIT_LAMBDA = 1.112
"""The lambda that no sureness reaches: every layer runs."""
CALIBRATION_LAMBDAS = (*(round(1.11 - 0.01 * step, 2) for step in range(112)), LAMBDAS[0])
"""The lambdas that a calibration tries, from the strictest of the fine grid to the loosest."""
ALL_LAMBDAS = tuple(sorted({*FINE_LAMBDAS, *CALIBRATION_LAMBDAS}))
"""All that is looked at: what is saved at best is never less than what a calibration promises."""


def calibrate(
    track: LayerConfidences,
    wished: float,
    *,
    risk: float = 0.05,
    lambdas: Sequence[float] = CALIBRATION_LAMBDAS,
) -> CalibratedExit:
    """The loosest lambda whose agreement is at least `wished`, save with probability `risk`.

    Learn then test (Angelopoulos et al. 2021): lambdas are tested from the strictest on, each
    with an exact binomial test of "the agreement is below the wish", until one can't be
    refuted. Testing in a fixed order needs no correction for the number of tests. It holds for
    tokens drawn independently, one per text, from the same source as those to come.
    """
    if not 0 < wished < 1 or not 0 < risk < 1:
        raise BadSpec(f"agreement and risk lie between 0 and 1, got {wished!r} and {risk!r}.")
    # Without exits the answers are the model's own: that needs no test, however few the tokens.
    chosen = NO_EXIT_LAMBDA
    for lam in sorted((one for one in lambdas if one < NO_EXIT_LAMBDA), reverse=True):
        agree = agreement_at(track, exit_layers(track, lam))
        # The chance to see so many agreements if the true rate were just the wished one.
        if binom.sf(agree.sum() - 1, len(agree), wished) > risk:
            break
        chosen = lam
    return _calibrated(track, chosen, wished, risk)


def _calibrated(
    track: LayerConfidences, lambda_: float, wished: float, risk: float
) -> CalibratedExit:
    layers = exit_layers(track, lambda_)
    return CalibratedExit(
        setting=lambda_,
        wished=wished,
        risk=risk,
        layers=float(layers.mean()),
        agreement=float(agreement_at(track, layers).mean()),
        tokens=len(layers),
        layers_all=len(track.sure),
    )
