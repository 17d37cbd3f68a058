"""Opening: what comes in as asked, what is refused and how it says so."""

import json
import pickle
import shutil
import socket
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cutaway.core.errors import BadModel, BadSpec, CutawayError, Missing, UnknownName
from cutaway.models.anatomy import ANATOMIES
from cutaway.models.load import open_model
from tests.tiny import SENTENCES, tiny


@pytest.fixture
def copy(folder_of, tmp_path):
    """A checkpoint folder of one's own to break."""

    def make(family: str = "gpt2") -> Path:
        return Path(shutil.copytree(folder_of(family), tmp_path / family))

    return make


def edit_json(path: Path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refusal(name, **options) -> str:
    """The one-line message with which a model is refused."""
    with pytest.raises(CutawayError) as caught:
        open_model(name, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


@pytest.mark.parametrize("family", ANATOMIES)
def test_the_facts_of_every_family_are_read_off_right(family, lm_of) -> None:
    lm = lm_of(family)
    assert (lm.family, lm.kind) == (family, ANATOMIES[family].kind)
    assert lm.layers == lm.module.config.num_hidden_layers
    assert lm.width == 32
    assert lm.context == 64
    assert lm.vocab == len(lm.tokenizer)
    assert lm.parameters == sum(p.numel() for p in lm.params().values())
    assert lm.tied == (lm.output_embedding[0] is lm.module.get_input_embeddings().weight)
    assert lm.has_head
    assert len(lm.read(SENTENCES[:1])) == lm.layers + 1


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_weights_come_in_the_asked_precision(dtype, lm_of) -> None:
    lm = lm_of("llama", dtype=dtype)
    assert lm.dtype == dtype
    assert {p.dtype for p in lm.params().values()} == {getattr(torch, dtype)}


def test_the_attention_kernel_is_as_asked_or_said(lm_of) -> None:
    assert lm_of("llama", attention="sdpa").attention == "sdpa"
    assert lm_of("llama").attention == "eager"
    without = lm_of("mpnet", attention="sdpa")
    assert without.attention == "eager"
    assert any("'sdpa'" in note for note in without.notes)


def test_a_path_and_an_open_model_are_accepted_too(folder_of) -> None:
    lm = open_model(Path(folder_of("gpt2")))
    assert open_model(lm) is lm
    assert lm.device in ("cpu", "cuda")


def test_a_missing_padding_token_leaves_the_vocabulary_alone(lm_of) -> None:
    lm = lm_of("llama")
    assert lm.tokenizer.pad_token == "</s>"
    assert len(lm.tokenizer) == lm.vocab
    assert any("padding token" in note for note in lm.notes)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dtype": "float23"}, "Did you mean 'float32'?"),
        ({"attention": "flash"}, "Known: eager, sdpa."),
        ({"device": "toaster"}, "device 'toaster' can't be used"),
    ],
)
def test_options_that_cannot_be_are_refused(options, said, folder_of) -> None:
    assert said in refusal(folder_of("gpt2"), **options)


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("smolm2-135m", Missing, "Did you mean 'smollm2-135m'?"),
        ("no-such-org/no-such-model", Missing, "offline is on"),
        ("./no/such/folder", Missing, "There is no folder './no/such/folder'"),
        ("what is this?", UnknownName, "is no model name"),
        ("", UnknownName, "is no model name"),
    ],
)
def test_an_unknown_model_is_refused_with_help(name, error, said) -> None:
    with pytest.raises(error) as caught:
        open_model(name, offline=True)
    assert said in str(caught.value)


def test_a_folder_with_a_typo_is_met_with_its_neighbour(copy) -> None:
    folder = copy("gpt2")
    assert "Did you mean 'gpt2'?" in refusal(str(folder.parent / "gtp2"))


def test_offline_no_connection_is_tried(monkeypatch) -> None:
    def refuse(*_):
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert "offline is on" in refusal("org/model", offline=True)


def test_offline_a_folder_opens_without_a_connection(folder_of, monkeypatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a connection was tried"))
    assert open_model(folder_of("bert"), offline=True).family == "bert"


def test_a_model_in_the_hub_cache_opens_offline_with_its_recorded_digest(
    folder_of, tmp_path, monkeypatch
) -> None:
    from huggingface_hub import constants

    from cutaway.models.digests import recorded_digest

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    snapshot = hub_cache(folder_of("gpt2"), tmp_path, "org/tiny")
    lm = open_model("org/tiny", offline=True)
    assert lm.name == "org/tiny"
    assert recorded_digest(snapshot / "model.safetensors") == "5" * 64
    assert "at revision 'v9'" in refusal("org/tiny", revision="v9", offline=True)


def hub_cache(folder: Path, cache: Path, name: str) -> Path:
    """The folder laid out as the hub's cache lays it out: blobs and links to them."""
    root = cache / f"models--{name.replace('/', '--')}"
    snapshot = root / "snapshots" / ("a" * 40)
    for part in (snapshot, root / "blobs", root / "refs"):
        part.mkdir(parents=True)
    (root / "refs" / "main").write_text("a" * 40)
    for number, file in enumerate(sorted(folder.iterdir())):
        blob = root / "blobs" / ("5" * 64 if file.suffix == ".safetensors" else f"{number:040d}")
        shutil.copy(file, blob)
        (snapshot / file.name).symlink_to(Path("../../blobs") / blob.name)
    return snapshot


def test_a_file_is_no_model(copy) -> None:
    assert "is a file" in refusal(copy() / "config.json")


def test_a_folder_without_config_is_refused(copy) -> None:
    folder = copy()
    (folder / "config.json").unlink()
    assert "has no config.json" in refusal(folder)
    assert "A folder inside has one: 'bert'" in refusal(folder_holding(copy("bert")))


def folder_holding(folder: Path) -> Path:
    (folder.parent / "outer").mkdir()
    shutil.move(folder, folder.parent / "outer" / folder.name)
    return folder.parent / "outer"


def test_a_folder_without_weights_is_refused(copy) -> None:
    folder = copy()
    (folder / "model.safetensors").unlink()
    assert "model.safetensors is missing" in refusal(folder)


def test_a_folder_without_tokenizer_is_refused(copy) -> None:
    folder = copy()
    (folder / "tokenizer.json").unlink()
    assert "has no tokenizer" in refusal(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "weights.pt", "model.pkl"])
def test_pickled_weights_are_refused_unread(name, copy) -> None:
    folder, trap = copy(), copy("bert") / "sprung"
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Trap(str(trap))))
    message = refusal(folder)
    assert name in message
    assert "save_pretrained" in message
    assert not trap.exists()


def test_a_pickle_under_a_safe_name_is_refused_unread(copy) -> None:
    folder, trap = copy(), copy("bert") / "sprung"
    (folder / "model.safetensors").write_bytes(pickle.dumps(Trap(str(trap))))
    assert "not a whole safetensors file" in refusal(folder)
    assert not trap.exists()


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"model_type": 3}', "\xff"])
def test_a_broken_config_is_refused(text, copy) -> None:
    folder = copy()
    (folder / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(BadModel, match=r"config\.json"):
        open_model(folder)


def test_a_family_that_transformers_does_not_know_is_refused(copy) -> None:
    folder = copy()
    edit_json(folder / "config.json", model_type="from_the_future")
    assert "from_the_future" in refusal(folder)


def test_an_encoder_decoder_is_refused(copy) -> None:
    folder = copy()
    edit_json(
        folder / "config.json",
        model_type="t5",
        architectures=["T5ForCausalLM"],
        is_encoder_decoder=True,
    )
    assert "encoder-decoder" in refusal(folder)


@pytest.mark.parametrize("keep", [0, 4, 100, 20_000])
def test_cut_weights_are_refused(keep, copy) -> None:
    folder = copy()
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:keep])
    assert "not a whole safetensors file" in refusal(folder)


def test_weights_of_another_shape_are_refused(copy) -> None:
    folder = copy()
    edit_json(folder / "config.json", n_embd=64)
    with pytest.raises(BadModel, match="can't be loaded"):
        open_model(folder)


def test_weights_lacking_a_part_of_the_body_are_refused(copy) -> None:
    folder = copy("llama")
    change_weights(folder, lambda name: "layers.1.mlp" not in name)
    with pytest.raises(BadModel, match="lacks 3 weights of the model's body"):
        open_model(folder)


def test_weights_without_a_head_open_for_their_layers_only(copy) -> None:
    folder = copy("bert")
    change_weights(folder, lambda name: not name.startswith("cls"))
    lm = open_model(folder)
    assert not lm.has_head
    assert any("no language-model head" in note for note in lm.notes)
    assert len(lm.read(SENTENCES[:2])) == 4
    with pytest.raises(Missing):
        lm.unembed(torch.zeros(1, lm.width))


def change_weights(folder: Path, keep) -> None:
    path = folder / "model.safetensors"
    weights = {name: value for name, value in load_file(path).items() if keep(name)}
    save_file(weights, path, metadata={"format": "pt"})


def test_a_missing_shard_is_named(copy, tmp_path) -> None:
    folder = copy()
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    index = {
        "weight_map": {
            "a": "model-00001-of-00002.safetensors",
            "b": "model-00002-of-00002.safetensors",
        }
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "model-00002-of-00002.safetensors is missing" in refusal(folder)


def test_shards_open_as_one(tmp_path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    whole = tiny("gpt2", tmp_path / "whole")
    parts = tmp_path / "parts"
    AutoModelForCausalLM.from_pretrained(whole).save_pretrained(parts, max_shard_size="50KB")
    AutoTokenizer.from_pretrained(whole).save_pretrained(parts)
    assert len(list(parts.glob("*.safetensors"))) > 1
    one, two = open_model(whole).read(SENTENCES)[3], open_model(parts).read(SENTENCES)[3]
    torch.testing.assert_close(one, two)


def test_a_broken_tokenizer_is_refused(copy) -> None:
    folder = copy()
    (folder / "tokenizer.json").write_text('{"model": 1}')
    assert "tokenizer" in refusal(folder)


def test_remote_code_is_not_run_unless_asked_for(copy) -> None:
    folder = copy()
    trap = folder.parent / "sprung"
    (folder / "evil.py").write_text(f"open({str(trap)!r}, 'w')\n")
    edit_json(folder / "config.json", model_type="evil", auto_map={"AutoConfig": "evil.EvilConfig"})
    refusal(folder)
    assert not trap.exists()


def test_an_incomplete_device_name_says_what_to_do(folder_of) -> None:
    with pytest.raises(BadSpec, match="Try auto or cpu"):
        open_model(folder_of("gpt2"), device="cuda:99")
