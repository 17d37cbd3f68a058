"""What a fit, and a look at every layer, hold at their peak and leave on disk: told in advance."""

from dataclasses import replace

from cutaway.methods.shortcut.maps import ShortcutMaps
from cutaway.methods.shortcut.maths.moments import layer_pairs, moments_bytes
from cutaway.methods.shortcut.sample import BATCH_TEXTS
from cutaway.methods.shortcut.spec import FitSpec
from cutaway.models.lm import LM
from cutaway.recipe.cost import Estimate

MAX_LOGITS = 8_000_000
"""Logits held at once: 32 MB."""
# Pages of the files that are read, and what the libraries hold on the way.
OVERHEAD_BYTES = 160 << 20
# Logits, the full model's log-probabilities and probabilities, and what is made on the way.
LOGIT_COPIES = 5


def fit_bytes(lm: LM, spec: FitSpec) -> int:
    """The products of all pairs with a chunk of rows, or the maps that come out of them."""
    pairs = layer_pairs(lm.layers, to_final=spec.layers == "to-final")
    gathering = moments_bytes(pairs, lm.width)
    held = max(gathering, maps_bytes(lm, spec))
    return held + states_bytes(lm, spec.positions_per_text) + OVERHEAD_BYTES


def maps_bytes(lm: LM, spec: FitSpec) -> int:
    """All maps that the spec asks for, as they are kept: float32."""
    pairs = len(layer_pairs(lm.layers, to_final=spec.layers == "to-final"))
    others = spec.intercept + (spec.ridge is not None) + (spec.rank is not None) + bool(spec.tuned)
    parts = 4 * spec.parts
    return (pairs + (others + parts) * lm.layers) * lm.width**2 * 4


def states_bytes(lm: LM, positions: int) -> int:
    """One batch of examples at every layer, as it lies on disk and as it is used."""
    return 2 * BATCH_TEXTS * positions * (lm.layers + 1) * lm.width * 4


def eval_bytes(lm: LM, maps: ShortcutMaps, positions: int) -> int:
    """Every map of the file, the logits of a few examples, their states."""
    return maps.size + LOGIT_COPIES * MAX_LOGITS * 4 + states_bytes(lm, positions) + OVERHEAD_BYTES


def plus_memory(estimate: Estimate, memory: int, disk: int = 0) -> Estimate:
    """The estimate of a pass, with what comes after it: peaks don't add up, files do."""
    return replace(
        estimate,
        memory_mb=round(max(estimate.memory_mb, memory / 2**20), 1),
        disk_mb=round(estimate.disk_mb + disk / 2**20, 1),
    )
