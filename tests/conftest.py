"""Shapes are checked in tests and free in production; every test gets a home of its own."""

import os
import sys

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

install_import_hook(["cutaway.pool", "cutaway.methods"], "beartype.beartype")


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory, monkeypatch):
    """No test reads or fills the user's cache."""
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path_factory.getbasetemp() / "home"))


@pytest.fixture(autouse=True)
def _same_chance():
    """Tests that draw from torch's global generator draw the same numbers every time."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
