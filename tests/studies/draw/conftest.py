"""A toy model with its data, and one drawing of it, shared by the tests of `draw`."""

import json
from pathlib import Path

import pytest

import cutaway
from cutaway.models.load import open_model
from tests.tiny import toy_model, toy_sentiment


@pytest.fixture(scope="package")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("draw")


@pytest.fixture(scope="package", autouse=True)
def _home(place):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUTAWAY_HOME", str(place / "home"))
        yield


@pytest.fixture(autouse=True)
def _same_home(place, monkeypatch):
    monkeypatch.setenv("CUTAWAY_HOME", str(place / "home"))


@pytest.fixture(scope="package")
def folder(place) -> str:
    return str(toy_model(place / "toy"))


@pytest.fixture(scope="package")
def masked_folder(place) -> str:
    return str(toy_model(place / "masked", "bert"))


@pytest.fixture(scope="package")
def toy(folder):
    return open_model(folder)


@pytest.fixture(scope="package")
def masked(masked_folder):
    return open_model(masked_folder)


@pytest.fixture(scope="package")
def data(place) -> str:
    texts, labels = toy_sentiment(80)
    rows = [json.dumps({"text": t, "label": int(y)}) for t, y in zip(texts, labels, strict=True)]
    (place / "mood.jsonl").write_text("\n".join(rows))
    return str(place / "mood.jsonl")


@pytest.fixture(scope="package")
def drawn(place, folder, data):
    """A drawing of the toy, made once."""
    return cutaway.draw(
        folder, data=data, runs=str(place / "runs"), quick=True, quiet=True,
        out=str(place / "toy.svg"),
    )  # fmt: skip
