"""Shapes are checked in tests and free in production; every test gets a home of its own."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

# Two tests at a time on two cores: one thread each keeps them from fighting.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# A slow moment of the machine is no failure of the code.
settings.register_profile("house", deadline=None)
settings.load_profile("house")

METHODS = Path(__file__).parents[1] / "src" / "cutaway" / "methods"
CHECKED = [
    "cutaway.pool",
    "cutaway.solvers",
    "cutaway.training.l1_proximal",
    *(f"cutaway.methods.{path.parent.name}.maths" for path in METHODS.glob("*/maths")),
]
install_import_hook(CHECKED, "beartype.beartype")


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory, monkeypatch):
    """No test reads or fills the user's cache."""
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path_factory.getbasetemp() / "home"))


@pytest.fixture(autouse=True)
def _same_chance():
    """Tests that draw from torch's global generator draw the same numbers every time."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def tiny_lm(tmp_path_factory):
    """Open a tiny model of a family, once per session."""
    from cutaway.models.load import open_model
    from tests.tiny import tiny

    opened = {}

    def get(family: str, **options):
        key = (family, *sorted(options.items()))
        if key not in opened:
            folder = tmp_path_factory.mktemp("models") / family
            opened[key] = open_model(str(tiny(family, folder)), check=False, **options)
        return opened[key]

    return get


@pytest.fixture
def texts():
    """Sentences of mixed length."""
    from cutaway.core.textset import TextSet
    from tests.tiny import SENTENCES

    rows = [*SENTENCES, "Yes.", "No", *(" ".join(SENTENCES[i : i + 2]) for i in range(4))]
    return TextSet("sentences", tuple(rows))
