"""What a checkpoint needs is known from its headers, and what can't fit is not loaded."""

from types import SimpleNamespace

import pytest

from cutaway.core.errors import NoRoom
from cutaway.methods.finetune.spec import FinetuneSpec
from cutaway.methods.graft.spec import LearnSpec
from cutaway.methods.inject.spec import FisherSpec, InjectSpec
from cutaway.methods.probe.spec import ProbeSpec
from cutaway.models import load
from cutaway.models.load import open_model
from cutaway.models.memory import CheckpointSize, checkpoint_size, need_memory
from cutaway.recipe.cost import memory_by_method
from cutaway.recipe.open_for_spec import open_for_spec

SIZE = CheckpointSize(weights=1_000, largest=400)


@pytest.fixture
def free(monkeypatch):
    """free(n) -> n bytes of memory are free."""
    return lambda n: monkeypatch.setattr(
        "psutil.virtual_memory", lambda: SimpleNamespace(available=n)
    )


def test_the_headers_have_the_number_of_weights(folder_of, lm_of) -> None:
    lm = lm_of("gpt2")
    size = checkpoint_size([folder_of("gpt2") / "model.safetensors"])
    assert size == CheckpointSize(lm.parameters, lm.vocab * lm.width)


def test_copies_are_counted_with_or_without_the_embeddings() -> None:
    assert SIZE.bytes(4) == 4_000
    assert SIZE.bytes(4, (3, True)) == 16_000
    assert SIZE.bytes(2, (3, False)) == 2 * (1_000 + 3 * 600)


@pytest.mark.parametrize(
    ("copies", "need", "words"),
    [((0.0, True), 4_000, "Choose a smaller"), ((3.0, True), 16_000, "Train fewer weights")],
)
def test_one_byte_too_little_is_refused_and_enough_is_not(copies, need, words, free) -> None:
    free(need)
    need_memory("m", SIZE, 4, copies)
    free(need - 1)
    with pytest.raises(NoRoom, match=words):
        need_memory("m", SIZE, 4, copies)


TRAINING = [
    FinetuneSpec(model="m", task="sst2", optimizer="adamw", fixed_embeddings=False),
    FisherSpec(model="m", text="docs"),
    InjectSpec(model="m"),
    LearnSpec(base="m", tuned="t", task="sst2"),
]


@pytest.mark.parametrize("spec", TRAINING, ids=lambda spec: type(spec).__name__)
def test_a_verb_that_needs_more_than_the_weights_is_refused_before_they_are_loaded(
    spec, folder_of, free, monkeypatch
) -> None:
    folder = folder_of("gpt2")
    size = checkpoint_size([folder / "model.safetensors"])
    monkeypatch.setattr(load, "load_weights", lambda *_: pytest.fail("loaded"))
    free(2 * size.weights * 4)
    with pytest.raises(NoRoom, match="gradients, optimizer states"):
        open_for_spec(str(folder), spec)
    monkeypatch.undo()
    assert open_model(folder).parameters == size.weights


def test_fewer_trained_weights_need_less() -> None:
    def need(**options) -> float:
        return SIZE.bytes(4, InjectSpec(model="m", **options).weight_copies)

    assert need() > need(weights="blocks") > need(weights="last") > SIZE.bytes(4)
    assert need(lora="8") < need(lora="0,8") == need()
    few = FinetuneSpec(model="m", task="sst2", biases_only=True)
    assert few.weight_copies[0] == 0
    assert ProbeSpec(model="m", data="d").weight_copies[0] == 1
    assert ProbeSpec(model="m", data="d", baselines="majority").weight_copies[0] == 0


def test_every_method_says_what_it_needs() -> None:
    needs = memory_by_method(SIZE, 4)
    assert needs["probe"] == 2 * needs["shortcut"] == 8_000
    assert needs["inject"] > needs["graft"] > needs["finetune"] > 4_000
