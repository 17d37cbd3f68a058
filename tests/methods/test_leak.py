"""Law: a process that reads a thousand times holds no more than after the first hundreds."""

import gc
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cutaway.core.textset import TextSet
from cutaway.extract.activations import extract
from cutaway.extract.request import ExtractionRequest
from cutaway.models.load import open_model
from tests.tiny import SENTENCES, tiny

MANY, WARM = 1000, 300
# Megabytes that allocators may keep back; a leaked batch of states would be far more.
SLACK = 12
MEMORY = Path("/dev/shm")


def resident() -> float:
    gc.collect()
    return psutil.Process().memory_info().rss / 2**20


@pytest.fixture
def home(tmp_path, monkeypatch) -> Iterator[Path]:
    """A store in memory where there can be one: a thousand shelves are written to it."""
    place = MEMORY if MEMORY.is_dir() else tmp_path
    with tempfile.TemporaryDirectory(dir=place) as folder:
        monkeypatch.setenv("CUTAWAY_HOME", folder)
        yield Path(folder)


@pytest.mark.timeout(300)
def test_a_thousand_extractions_in_one_process_stay_flat(home, tmp_path) -> None:
    """Each of other texts, so that each reads the model, writes a shelf and maps its columns."""
    lm = open_model(str(tiny("gpt2", tmp_path / "gpt2")), check=False)
    ask, seen = ExtractionRequest(layers=(2,), pools=("mean",)), 0.0
    for number in range(MANY):
        texts = TextSet("few", tuple(f"{number} {text}" for text in SENTENCES[:2]))
        found = extract(lm, texts, ask)
        assert found.column(2, "mean").shape == (2, lm.width)
        if number % 20 == 0:
            # Looking how large the store is takes longer the more there is.
            shutil.rmtree(home)
        if number == WARM:
            seen = resident()
    assert resident() - seen < SLACK
