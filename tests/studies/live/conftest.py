"""A toy model with maps and probes, shared by the tests of the Live page."""

import json
from pathlib import Path

import pytest

from cutaway.catalog import VERBS
from cutaway.methods.probe.spec import ProbeSpec
from cutaway.methods.shortcut.spec import FitSpec
from cutaway.models.load import open_model
from cutaway.recipe.life_cycle import run as run_verb
from tests.tiny import toy_language, toy_model, toy_sentiment


@pytest.fixture(scope="package")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("live")


@pytest.fixture(scope="package", autouse=True)
def _home(place):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUTAWAY_HOME", str(place / "home"))
        yield


@pytest.fixture(autouse=True)
def _same_home(place, monkeypatch):
    """Each test has a home of its own; here they share the one of the runs above."""
    monkeypatch.setenv("CUTAWAY_HOME", str(place / "home"))


@pytest.fixture(scope="package")
def toy(place):
    return open_model(toy_model(place / "toy"))


@pytest.fixture(scope="package")
def masked(place):
    return open_model(toy_model(place / "masked", "bert"))


@pytest.fixture(scope="package")
def maps_file(place, toy) -> Path:
    (place / "text.txt").write_text("\n".join(toy_language(200)))
    spec = FitSpec(
        model=str(place / "toy"), text=str(place / "text.txt"), runs=str(place / "runs"),
        layers="to-final",
    )  # fmt: skip
    return run_verb(VERBS["shortcut fit"], spec).path / "shortcut.safetensors"


@pytest.fixture(scope="package")
def run(place, toy) -> Path:
    texts, labels = toy_sentiment(80)
    rows = [json.dumps({"text": t, "label": int(y)}) for t, y in zip(texts, labels, strict=True)]
    (place / "data.jsonl").write_text("\n".join(rows))
    spec = ProbeSpec(
        model=str(place / "toy"), data=str(place / "data.jsonl"), runs=str(place / "runs"),
        pool=("last", "mean"), repeats=1, baselines="none",
    )  # fmt: skip
    return run_verb(VERBS["probe"], spec).path
