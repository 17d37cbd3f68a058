"""Memory estimates: they cover what is really written and computed."""

import pytest

from cutaway.core.model_size import ModelSize
from cutaway.methods.shortcut.maths.moments import layer_pairs, moments_bytes
from cutaway.methods.shortcut.memory import (
    LOGIT_COPIES,
    MAX_LOGITS,
    eval_bytes,
    fit_bytes,
    maps_bytes,
)
from cutaway.methods.shortcut.spec import FitSpec
from tests.methods.shortcut.toy import EVERY_KIND

SIZE = ModelSize(weights=1, largest=1, width=64, layers=8, vocab=100)


def test_the_file_is_as_large_as_estimated(toy, maps) -> None:
    names = [n for n in maps.artefact.names if n.split("/")[-1] not in ("bias", "words", "fitted")]
    size = sum(maps.artefact.tensor(name).numel() * 4 for name in names)
    assert size <= maps_bytes(toy, FitSpec(model="-", **EVERY_KIND))
    pairs = len(layer_pairs(toy.layers))
    assert maps_bytes(toy, FitSpec(model="-")) == pairs * toy.width**2 * 4


@pytest.mark.parametrize("layers", ["all", "to-final", "final-and-next"])
def test_a_fit_needs_at_least_its_products(toy, layers) -> None:
    pairs = layer_pairs(toy.layers, layers)
    spec = FitSpec(model="-", layers=layers)
    assert fit_bytes(toy, spec) > moments_bytes(pairs, toy.width)
    more = FitSpec(model="-", layers=layers, positions_per_text=8)
    assert fit_bytes(toy, more) > fit_bytes(toy, spec)
    assert spec.work_bytes(SIZE) > moments_bytes(layer_pairs(8, layers), 64)


def test_an_evaluation_needs_the_maps_and_its_logits(toy) -> None:
    need = eval_bytes(toy, 1000, 1)
    assert need > 1000 + LOGIT_COPIES * MAX_LOGITS * 4
    assert eval_bytes(toy, 5000, 1) - need == 4000
