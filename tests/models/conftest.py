"""Tiny models of every family, opened once per session as a user opens them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cutaway.models.lm import LM
from cutaway.models.load import open_model
from tests.tiny import tiny

Opened = Callable[..., LM]


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """folder_of("bert", layers...) -> a checkpoint folder, made once per set of options."""
    made: dict[tuple, Path] = {}

    def make(family: str, **overrides) -> Path:
        key = (family, repr(sorted(overrides.items())))
        if key not in made:
            made[key] = tiny(family, tmp_path_factory.mktemp(family), **overrides)
        return made[key]

    return make


@pytest.fixture(scope="session")
def lm_of(folder_of) -> Opened:
    """lm_of("bert") -> an open model with eager attention; never change its weights."""
    opened: dict[tuple, LM] = {}

    def make(family: str, *, attention: str = "eager", dtype: str = "float32", **overrides) -> LM:
        key = (family, attention, dtype, repr(sorted(overrides.items())))
        if key not in opened:
            folder = folder_of(family, **overrides)
            opened[key] = open_model(folder, attention=attention, dtype=dtype, check=False)
        return opened[key]

    return make


@pytest.fixture(params=["gpt2", "llama", "bert"])
def lm(request, lm_of) -> LM:
    """One model without and one with a start token, and a masked one."""
    return lm_of(request.param)


@pytest.fixture
def copy(folder_of, tmp_path):
    """A checkpoint folder of one's own to break."""

    def make(family: str = "gpt2") -> Path:
        return Path(shutil.copytree(folder_of(family), tmp_path / family))

    return make
