"""Models that specs name: as the spec says, once for all recipes."""

from types import SimpleNamespace

import pytest
import torch

from cutaway.core.errors import BadSpec
from cutaway.methods.finetune.spec import FinetuneSpec
from cutaway.methods.inject.spec import FisherSpec
from cutaway.methods.probe.spec import ProbeSpec
from cutaway.methods.shortcut.spec import LensSpec
from cutaway.models.memory import Workload
from cutaway.recipe import open_for_spec as room
from cutaway.recipe.open_for_spec import SpecModels, open_for_spec, open_spec_model

SAID = {"dtype": "bfloat16", "device": "cpu", "offline": True, "bos": "add"}
PLAIN = SimpleNamespace(name="m", module=torch.nn.Linear(1, 1), chat=None)
# A model that no user gets to see needs no print of its weights.
ASKED = {
    **SAID,
    "quantise": "none",
    "track_changes": False,
}


def workload(spec) -> Workload:
    return Workload(spec.weight_copies, spec.work_bytes)


@pytest.fixture
def asked(monkeypatch) -> list:
    """What `open_model` was asked for; nothing is opened."""
    calls: list = []
    monkeypatch.setattr(room, "open_model", lambda name, **how: calls.append((name, how)) or PLAIN)
    return calls


@pytest.mark.parametrize(
    "spec",
    [
        FinetuneSpec(model="m", task="sst2", revision="v1", **SAID),
        FisherSpec(model="m", text="docs", revision="v1", **SAID),
        LensSpec(model="m", text="a", revision="v1", **SAID),
    ],
    ids=lambda spec: type(spec).__name__,
)
def test_the_model_of_a_spec_is_opened_with_all_that_the_spec_says(spec, asked) -> None:
    open_spec_model(spec)
    assert asked == [("m", {**ASKED, "revision": "v1", "workload": workload(spec)})]


def test_an_option_that_is_given_wins_over_the_spec(asked) -> None:
    spec = ProbeSpec(model="m", data="d", **SAID)
    open_for_spec("m", spec, dtype="float32", check=False)
    given = {"dtype": "float32", "check": False, "workload": workload(spec)}
    assert asked == [("m", {**ASKED, **given})]


def test_a_model_given_as_an_object_is_taken_as_it_is(tiny_lm) -> None:
    lm = tiny_lm("gpt2")
    spec = LensSpec(model="mine", text="a", dtype="bfloat16")
    assert open_spec_model(spec, {"mine": lm}) is lm
    assert lm.dtype == "float32"


def test_objects_of_other_names_change_nothing(asked) -> None:
    spec = ProbeSpec(model="m", data="d", **SAID)
    open_for_spec("m", spec, {"other": object()})
    assert asked == [("m", {**ASKED, "workload": workload(spec)})]


@pytest.fixture
def opened(monkeypatch, tiny_lm) -> list[str]:
    """The names of the models that were opened, in order."""
    names: list[str] = []

    def fake_open(name, **options):
        names.append(name)
        return tiny_lm(name)

    monkeypatch.setattr(room, "open_model", fake_open)
    return names


def test_the_models_of_a_spec_are_opened_once_for_all_passes(opened) -> None:
    models = SpecModels(ProbeSpec(model=("gpt2", "bert"), data="d"))
    first, second = [lm.short_id for lm in models], [lm.short_id for lm in models]
    assert first == second
    assert opened == ["gpt2", "bert"]


def test_models_that_do_not_fit_in_memory_are_opened_for_each_pass(opened, monkeypatch) -> None:
    monkeypatch.setattr(room.psutil, "virtual_memory", lambda: SimpleNamespace(available=0))
    models = SpecModels(ProbeSpec(model=("gpt2", "bert"), data="d"))
    assert [lm.short_id for lm in models] == [lm.short_id for lm in models]
    assert opened == ["gpt2", "bert"] * 2
    opened.clear()
    only = SpecModels(ProbeSpec(model="gpt2", data="d"))
    assert [lm.short_id for lm in only] == [lm.short_id for lm in only]
    assert opened == ["gpt2"]


def test_a_model_that_is_given_twice_is_refused(opened) -> None:
    with pytest.raises(BadSpec, match=r"--model has .*gpt2' twice"):
        list(SpecModels(ProbeSpec(model=("gpt2", "gpt2"), data="d")))
