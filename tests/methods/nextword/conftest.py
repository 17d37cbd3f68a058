"""Toy models that the tests of nextword share."""

import json

import pytest

from cutaway.methods.nextword.details import DETAILS_FILE
from cutaway.models.load import open_model
from tests.methods.nextword.run_rows import ALL, DETAILS
from tests.report.fake_runs import FakeRecord
from tests.tiny import toy_model


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    """A causal model that completes the toy sentences."""
    return open_model(str(toy_model(tmp_path_factory.mktemp("toy") / "toy")))


@pytest.fixture(scope="session")
def toy_bert(tmp_path_factory):
    """A masked model of the toy sentences."""
    return open_model(str(toy_model(tmp_path_factory.mktemp("toy") / "bert", "bert")))


@pytest.fixture
def record(tmp_path) -> FakeRecord:
    (tmp_path / DETAILS_FILE).write_text(json.dumps(DETAILS))
    return FakeRecord(ALL, method="nextword", path=tmp_path)
