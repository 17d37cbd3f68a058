"""A model gives the same numbers wherever its weights are; what can't be had here is refused."""

import contextlib
from types import SimpleNamespace

import pytest
import torch

from cutaway.core.errors import BadModel, BadSpec, CutawayError
from cutaway.models import placement
from cutaway.models.check import quick_check, run_checks
from cutaway.models.hooks import collect_states
from cutaway.models.lm import LM
from cutaway.models.load import open_model, random_twin
from cutaway.models.placement import (
    Placement,
    choose_placement,
    input_device,
    materialise,
    module_placement,
    need_changeable,
)
from cutaway.models.rounding import relative_error
from cutaway.models.sites import Site
from tests.tiny import FAMILIES, tiny

# transformers runs this family only on one device: its blocks get weights of other modules as
# arguments.
UNDISTRIBUTABLE = ("deberta-v2",)


def partly_on_disk(folder) -> LM:
    """The model with some weights in memory and some on disk."""
    whole = open_model(folder, check=False, track_changes=False)
    weights = sum(p.numel() * p.element_size() for p in whole.module.parameters())
    for share in (0.75, 0.9, 0.6, 0.4):
        limit = {"cpu": int(share * weights)}
        # transformers 5.22 can't divide some models with tied weights at some limits (IndexError).
        with contextlib.suppress(BadModel):
            lm = open_model(
                folder, device="map", max_memory=limit, check=False, track_changes=False
            )
            if set(lm.device_map.values()) == {"cpu", "disk"}:
                return lm
    raise AssertionError("no limit puts a part of it on disk")


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in UNDISTRIBUTABLE])
def test_a_model_partly_on_disk_has_the_same_states_logits_and_facts(
    family, folder_of, lm_of
) -> None:
    lm, plain = partly_on_disk(folder_of(family)), lm_of(family, attention="sdpa")
    ids = torch.tensor([[5, 6, 7, 8]])
    real = torch.ones_like(ids, dtype=torch.bool)
    with torch.no_grad():
        got, want = (collect_states(one, ids, real, logits=True) for one in (lm, plain))
        ends = [one.unembed(one.final_norm(want.layers[one.layers])) for one in (lm, plain)]
        features = [one.head_features(want.layers[one.layers]) for one in (lm, plain)]
    assert all(torch.equal(got.layers[n], want.layers[n]) for n in range(plain.layers + 1))
    assert torch.equal(got.logits, want.logits)
    assert torch.equal(*ends) and torch.equal(*features)
    for mine, theirs in zip(lm.output_embedding, plain.output_embedding, strict=True):
        assert theirs is mine is None or torch.equal(mine, theirs)
    for field in ("tied", "parameters", "vocab", "digest", "identity", "device"):
        assert getattr(lm, field) == getattr(plain, field), field


@pytest.mark.parametrize("family", UNDISTRIBUTABLE)
def test_a_family_that_cannot_be_distributed_is_refused_with_the_reason(family, folder_of) -> None:
    with pytest.raises(BadModel, match="doesn't run distributed by `map`"):
        open_model(folder_of(family), device="map", max_memory={"cpu": 100_000})


def test_reading_and_checking_work_on_a_model_partly_on_disk(folder_of, lm_of) -> None:
    lm, plain = partly_on_disk(folder_of("llama")), lm_of("llama", attention="sdpa")
    quick_check(lm)
    texts = ["one two three", "four"]
    for pool in ("last", "mean", "attn"):
        mine, theirs = (one.read(texts, pool=pool) for one in (lm, plain))
        assert all(torch.equal(mine[n], theirs[n]) for n in theirs)
    sites = [Site(1, "mlp", "out"), Site(2, "attn", "in")]
    ids = torch.tensor([[5, 6, 7]])
    got, want = (
        collect_states(one, ids, torch.ones_like(ids).bool(), (), sites).sites
        for one in (lm, plain)
    )
    assert all(torch.equal(got[site], want[site]) for site in sites)


def test_verbs_that_change_weights_refuse_a_model_partly_on_disk(folder_of) -> None:
    with pytest.raises(BadModel, match="offloaded to CPU or disk"):
        lm = partly_on_disk(folder_of("gpt2"))
        need_changeable(lm.name, lm.module)


def test_a_random_twin_of_a_distributed_model_is_on_one_device(folder_of, lm_of) -> None:
    twins = [
        random_twin(one, seed=3)
        for one in (partly_on_disk(folder_of("gpt2")), lm_of("gpt2", attention="sdpa"))
    ]
    assert torch.equal(*(twin.output_embedding[0] for twin in twins))
    assert twins[0].device_map == {}


def test_without_a_gpu_map_is_the_cpu(folder_of) -> None:
    lm = open_model(folder_of("gpt2"), device="map")
    assert (lm.device, dict(lm.device_map)) == ("cpu", {})
    need_changeable(lm.name, lm.module)


@pytest.fixture
def machine(monkeypatch):
    """machine(cuda=2) -> this process believes to have these devices."""

    def pretend(cuda: int = 0, *, mps: bool = False, bitsandbytes: bool = True) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
        monkeypatch.setattr(placement, "_need_dtype", lambda *_: None)
        monkeypatch.setattr(placement, "find_spec", lambda _: bitsandbytes or None)
        monkeypatch.setattr(torch, "empty", lambda *_, **__: None)

    return pretend


@pytest.mark.parametrize(
    ("here", "device", "dtype", "expected"),
    [
        ({}, "auto", "auto", ("cpu", "float32")),
        ({"cuda": 1}, "auto", "auto", ("cuda", "bfloat16")),
        ({"cuda": 2}, "cuda:1", "auto", ("cuda:1", "bfloat16")),
        ({"cuda": 2}, "map", "auto", ("map", "bfloat16")),
        ({"cuda": 1}, "cpu", "auto", ("cpu", "float32")),
        ({"cuda": 1}, "auto", "float32", ("cuda", "float32")),
        ({"mps": True}, "auto", "auto", ("mps", "bfloat16")),
        ({}, "map", "auto", ("map", "float32")),
    ],
)
def test_auto_is_the_best_device_with_the_precision_for_it(
    here, device, dtype, expected, machine
) -> None:
    machine(**here)
    chosen = choose_placement(device, dtype, checkpoint=torch.bfloat16)
    assert (chosen.device, chosen.dtype) == expected


def test_a_checkpoint_without_a_known_precision_is_opened_in_float32(machine) -> None:
    machine(cuda=1)
    assert choose_placement("auto", "auto", checkpoint=None).dtype == "float32"


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (Placement("cuda:1", "float16"), {"dtype": torch.float16}),
        (Placement("mps", "float32"), {"dtype": torch.float32}),
        (
            Placement("map", "bfloat16", max_memory={0: "10GiB", "cpu": "30GiB"}),
            {
                "dtype": torch.bfloat16,
                "device_map": "auto",
                "max_memory": {0: "10GiB", "cpu": "30GiB"},
            },
        ),
    ],
)
def test_the_arguments_of_from_pretrained(place, expected) -> None:
    options = place.load_options()
    options.pop("offload_folder", None)
    assert options == expected


@pytest.mark.parametrize(("name", "bits"), [("int8", "load_in_8bit"), ("int4", "load_in_4bit")])
def test_quantised_weights_are_asked_of_transformers(name, bits) -> None:
    options = Placement("cuda", "bfloat16", name).load_options()
    assert getattr(options["quantization_config"], bits)
    assert options["quantization_config"].bnb_4bit_compute_dtype == torch.bfloat16
    assert options["device_map"] == {"": "cuda"}
    spread = Placement("map", "bfloat16", name).load_options()
    assert spread["device_map"] == "auto"


@pytest.mark.parametrize(
    ("here", "options", "words"),
    [
        ({"bitsandbytes": False}, {"quantise": "int4"}, "pip install 'cutaway"),
        ({"mps": True}, {"device": "mps", "quantise": "int8"}, "no kernels"),
        ({}, {"quantise": "int2"}, "Known: int4, int8, none"),
        ({}, {"device": "cpu", "max_memory": {"cpu": 1}}, "needs device='map'"),
    ],
)
def test_what_this_machine_cannot_do_is_refused(here, options, words, machine) -> None:
    machine(**here)
    with pytest.raises(CutawayError, match=words):
        choose_placement(**{"device": "auto", "dtype": "auto"} | options)


@pytest.mark.parametrize("device", ["cuda", "cuda:3", "mps"])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(device) -> None:
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        pytest.skip("this machine has such a device")
    with pytest.raises(BadSpec, match="On this machine: auto, cpu, map") as refused:
        choose_placement(device, "float32")
    assert len(str(refused.value)) < 200


def test_a_precision_that_the_device_lacks_is_refused(monkeypatch) -> None:
    def lacking(*_: object, dtype: torch.dtype, **__: object) -> None:
        raise TypeError(f"{dtype} is not supported by this device.")

    monkeypatch.setattr(torch, "ones", lacking)
    with pytest.raises(BadSpec, match=r"can't be used on device 'cpu': torch.float16 is not"):
        choose_placement("cpu", "float16")


@pytest.mark.parametrize("how", ["int8", "int4"])
def test_a_quantised_model_is_read_checked_and_kept_apart(how, tmp_path) -> None:
    pytest.importorskip("bitsandbytes")
    config = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    tiny("llama", tmp_path, **config)
    texts, plain = ["a red bird sings", "two dogs"], open_model(tmp_path)
    lm = open_model(tmp_path, quantise=how)
    assert lm.module.is_quantized
    assert all(one.passed for one in run_checks(lm))
    assert lm.identity != plain.identity
    states = [one.read(texts, layers=[2], pool="last")[2] for one in (plain, lm)]
    assert 1e-4 < relative_error(*states) < 0.5


def test_quantised_weights_are_not_changed() -> None:
    module = torch.nn.Linear(1, 1)
    need_changeable("m", module)
    module.is_quantized = True
    with pytest.raises(BadModel, match="are quantised"):
        need_changeable("m", module)


def test_places_of_several_gpus_are_named_and_states_are_gathered_at_the_first() -> None:
    module = torch.nn.Module()
    module.embeddings = torch.nn.Embedding(3, 2, device="meta")
    module.embeddings._hf_hook = SimpleNamespace(execution_device=1)
    module.hf_device_map = {"embeddings": 1, "blocks.0": 0, "blocks.1": "disk"}
    assert module_placement(module) == {
        "embeddings": "cuda:1", "blocks.0": "cuda:0", "blocks.1": "disk",
    }  # fmt: skip
    assert input_device(module, "embeddings") == "cuda:1"


def test_a_missing_bias_is_none() -> None:
    assert materialise(torch.nn.Linear(2, 2, bias=False), "bias", "cpu") is None
