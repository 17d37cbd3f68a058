"""Fixtures that the tests of inject share."""

import pytest

from tests.methods.inject.toys import spelling_toy


@pytest.fixture(scope="session")
def toys(tmp_path_factory):
    """{kind: folder}."""
    root = tmp_path_factory.mktemp("toys")
    return {"causal": spelling_toy(root / "c", "llama"), "masked": spelling_toy(root / "m", "bert")}
