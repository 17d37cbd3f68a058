"""Double precision is there on every device, and every verb that reads runs without it."""

from pathlib import Path

import numpy as np
import pytest
import torch

import cutaway
from cutaway.core.float64 import float64_device, to_float64
from cutaway.models.load import open_model
from tests.mps_like import device_without_float64, on_device_without_float64
from tests.tiny import tiny, toy_language, toy_sentiment

CPU, CUDA, MPS = (torch.device(name) for name in ("cpu", "cuda", "mps"))


@pytest.mark.parametrize(("device", "expected"), [(CPU, CPU), (CUDA, CUDA), (MPS, CPU)])
def test_only_devices_without_float64_hand_over_to_the_cpu(device, expected) -> None:
    assert float64_device(device) == expected


def test_the_stand_in_refuses_what_such_a_device_refuses() -> None:
    with device_without_float64():
        there = torch.ones(3, device="mps")
        assert there.device == MPS and (there + 1).device == MPS
        with pytest.raises(TypeError, match="float64"):
            there.double()
        with pytest.raises(AssertionError, match="combines tensors"):
            there + torch.ones(3)
        exact = to_float64(there)
        assert (exact.dtype, exact.device) == (torch.float64, CPU)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model on the CPU, and the same on a device without float64."""
    lm = open_model(tiny("llama", tmp_path_factory.mktemp("llama")))
    return {"cpu": lm, "mps": on_device_without_float64(lm)}


TEXTS, LABELS = toy_sentiment(30)
DATA = {"text": list(TEXTS), "label": [int(label) for label in LABELS]}
SENTENCES = {"text": toy_language(40)}


def maps(lm, folder: Path) -> str:
    out = str(folder / "maps.safetensors")
    cutaway.shortcut.fit(
        model=lm, text=SENTENCES, out=out, parts=True, positions_per_text=2,
        runs=folder, quiet=True,
    )  # fmt: skip
    return out


READING_VERBS = {
    "probe": lambda lm, folder: cutaway.probe(
        model=lm, data=DATA, layers="0,2", pool="q0.4", classifier="logistic", repeats=1,
        baselines="majority", runs=folder, quiet=True,
    ).rows,
    "shortcut eval": lambda lm, folder: cutaway.shortcut.eval(
        model=lm, shortcut=maps(lm, folder), text=SENTENCES, runs=folder, quiet=True
    ).rows,
    "shortcut exit": lambda lm, folder: cutaway.shortcut.exit(
        model=lm, shortcut=maps(lm, folder), text=SENTENCES, runs=folder, quiet=True
    ).rows,
    "fisher": lambda lm, folder: cutaway.fisher(
        model=lm, text=SENTENCES, limit=8, out=str(folder / "f.safetensors"), runs=folder,
        quiet=True,
    ).rows,
}  # fmt: skip


@pytest.mark.parametrize("verb", READING_VERBS)
def test_a_verb_gives_the_same_rows_on_a_device_without_float64(verb, models, tmp_path) -> None:
    plain = READING_VERBS[verb](models["cpu"], tmp_path / "cpu")
    with device_without_float64():
        there = READING_VERBS[verb](models["mps"], tmp_path / "mps")
    values = (np.asarray(rows["value"], dtype=float) for rows in (there, plain))
    np.testing.assert_allclose(*values, rtol=1e-4, atol=1e-5)
