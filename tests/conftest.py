"""Shapes are checked in tests and free in production; every test gets a home of its own."""

import os

import pytest
from jaxtyping import install_import_hook

# Two tests at a time on two cores: one thread each keeps them from fighting.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

install_import_hook(["cutaway.pool", "cutaway.methods"], "beartype.beartype")


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory, monkeypatch):
    """No test reads or fills the user's cache."""
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path_factory.getbasetemp() / "home"))
