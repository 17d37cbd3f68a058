"""Memory and disk that the verbs of shortcut need, estimated before they start."""

from dataclasses import replace

from cutaway.extract.estimate import estimate_pass
from cutaway.methods.shortcut.maths.moments import layer_pairs, moments_bytes
from cutaway.methods.shortcut.sample import BATCH_TEXTS, SampleRequest
from cutaway.methods.shortcut.spec import FitSpec
from cutaway.models.lm import LM
from cutaway.recipe.cost import Estimate

MAX_LOGITS = 8_000_000
"""Logits in memory at the same time: 32 MB."""
# Mapped pages of the files that are read, and temporary buffers of the libraries.
OVERHEAD_BYTES = 160 << 20
# Logits of the full model and of a layer, the full model's probabilities in float64, and others.
LOGIT_COPIES = 5


def fit_bytes(lm: LM, spec: FitSpec) -> int:
    """Peak of a fit: the products of all pairs with a chunk of rows, or the resulting maps."""
    pairs = layer_pairs(lm.layers, spec.layers)
    peak = max(moments_bytes(pairs, lm.width), maps_bytes(lm, spec))
    return peak + states_bytes(lm, spec.positions_per_text) + OVERHEAD_BYTES


def maps_bytes(lm: LM, spec: FitSpec) -> int:
    """All maps that the spec requests, in float32."""
    pairs = len(layer_pairs(lm.layers, spec.layers))
    others = spec.intercept + (spec.ridge is not None) + (spec.rank is not None) + bool(spec.tuned)
    return (pairs + (others + 4 * spec.parts) * lm.layers) * lm.width**2 * 4


def states_bytes(lm: LM, positions: int) -> int:
    """One batch of examples at every layer, as stored and as used."""
    return 2 * BATCH_TEXTS * positions * (lm.layers + 1) * lm.width * 4


def eval_bytes(lm: LM, file_bytes: int, positions: int) -> int:
    """Peak of an evaluation: every map of the file, the logits of a few examples, their states."""
    return file_bytes + LOGIT_COPIES * MAX_LOGITS * 4 + states_bytes(lm, positions) + OVERHEAD_BYTES


def estimate_sample(request: SampleRequest, memory: int, disk: int = 0) -> list[Estimate]:
    """The cost of reading the texts and of the work after it: peaks don't add up, files do."""
    reading = estimate_pass(request.lm, request.texts, request.extraction)
    return [
        replace(
            reading,
            memory_mb=round(max(reading.memory_mb, memory / 2**20), 1),
            disk_mb=round(reading.disk_mb + disk / 2**20, 1),
        )
    ]
