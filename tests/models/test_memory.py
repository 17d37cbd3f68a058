"""What a checkpoint needs is known from its headers, and what can't fit is not loaded."""

from types import SimpleNamespace

import pytest

from cutaway.console import Console, messages_on
from cutaway.core.errors import BadModel, NoRoom
from cutaway.core.model_size import NO_COPIES, PROGRAM_BYTES, ModelSize, WeightCopies
from cutaway.methods.finetune.spec import FinetuneSpec
from cutaway.methods.graft.spec import LearnSpec
from cutaway.methods.inject.spec import FisherSpec, InjectSpec
from cutaway.methods.probe.spec import ProbeSpec
from cutaway.models import load
from cutaway.models.load import open_model
from cutaway.models.memory import Workload, checkpoint_size, need_memory
from cutaway.models.placement import Placement
from cutaway.recipe.cost import memory_by_method
from cutaway.recipe.open_for_spec import open_for_spec

SIZE = ModelSize(weights=1_000, largest=400)


@pytest.fixture
def free(monkeypatch):
    """free(n) -> n bytes of memory are free."""
    return lambda n: monkeypatch.setattr(
        "psutil.virtual_memory", lambda: SimpleNamespace(available=n)
    )


def test_the_headers_have_the_number_of_weights(folder_of, lm_of) -> None:
    lm = lm_of("gpt2")
    size = checkpoint_size([folder_of("gpt2") / "model.safetensors"])
    assert size == ModelSize(lm.parameters, lm.vocab * lm.width)


CPU = Placement("cpu", "float32")


@pytest.mark.parametrize(
    ("copies", "need", "words"),
    [(NO_COPIES, 1, "Choose a smaller"), (WeightCopies(3.0), 4, "Train fewer weights")],
)
def test_one_byte_too_little_is_refused_and_enough_is_not(
    copies, need, words, free, folder_of
) -> None:
    files = [folder_of("gpt2") / "model.safetensors"]
    whole = need * 4 * checkpoint_size(files).weights
    free(whole)
    need_memory("m", files, None, CPU, Workload(copies))
    free(whole - 1)
    with pytest.raises(NoRoom, match=words):
        need_memory("m", files, None, CPU, Workload(copies))


def test_a_run_shows_its_need_before_the_weights_are_loaded(folder_of, monkeypatch, capsys) -> None:
    def loaded(*_) -> None:
        assert capsys.readouterr().err.count("Memory with ") == 1
        raise BadModel("loaded")

    monkeypatch.setattr(load, "load_weights", loaded)
    with pytest.raises(BadModel, match="loaded"):
        open_for_spec(str(folder_of("gpt2")), ProbeSpec(model="m", data="d"))
    with messages_on(Console(quiet=True)), pytest.raises(AssertionError):
        open_for_spec(str(folder_of("gpt2")), ProbeSpec(model="m", data="d"))


def test_quantised_weights_are_smaller_and_the_shape_is_that_of_the_config(
    lm_of, folder_of
) -> None:
    lm, files = lm_of("gpt2"), [folder_of("gpt2") / "model.safetensors"]
    size = checkpoint_size(files, lm.module.config)
    assert (size.width, size.layers, size.vocab) == (lm.width, lm.layers, lm.vocab)
    whole, int8, int4 = (
        Workload().need(size, Placement("cpu", "float32", how)).weights
        for how in ("none", "int8", "int4")
    )
    assert whole > int8 > int4 > 4 * size.largest


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
    # The Fishers are those of all weights, also where few are trained.
    assert need(weights="last", clash=False, regulariser="l2sp") < need(weights="last")
    assert need(weights="last", retain=["a", "b"]) > need(weights="last")
    few = FinetuneSpec(model="m", task="sst2", biases_only=True)
    assert few.weight_copies.count == 0
    assert ProbeSpec(model="m", data="d").weight_copies.count == 1
    assert ProbeSpec(model="m", data="d", baselines="majority").weight_copies.count == 0


def test_what_is_in_files_on_a_cpu_is_in_the_memory_of_a_gpu() -> None:
    copies = InjectSpec(model="m").weight_copies
    here, there = (Workload(copies).need(SIZE, Placement(d, "float32")) for d in ("cpu", "cuda"))
    assert (here.copies, here.views) == (3 * 4 * SIZE.weights, 3 * 4 * SIZE.weights)
    assert (there.copies, there.views) == (here.copies + here.views, 0)


def test_every_method_says_what_it_needs() -> None:
    needs = memory_by_method(ModelSize(10**9, 10**8, 2048, 20, 50_000), CPU)
    assert needs["probe"] > 8 * 10**9 > needs["nextword"] > 4 * 10**9 + PROGRAM_BYTES
    assert needs["graft"] > needs["inject"] > needs["finetune"] > 5 * 10**9
