"""A folder is looked at before anything in it is loaded."""

import json
import pickle
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from cutaway.core.errors import BadModel, NoRoom
from cutaway.models import load
from cutaway.models.load import open_model
from cutaway.models.memory import checkpoint_size
from tests.models.breaking import Trap, refusal


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
    assert "not a complete safetensors file" in refusal(folder)
    assert not trap.exists()


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"model_type": 3}', "\xff"])
def test_a_broken_config_is_refused(text, copy) -> None:
    folder = copy()
    (folder / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(BadModel, match=r"config\.json"):
        open_model(folder)


def without(folder: Path, *names: str) -> dict:
    """Remove these fields from the config, which is returned."""
    config = json.loads((folder / "config.json").read_text())
    kept = {name: value for name, value in config.items() if name not in names}
    (folder / "config.json").write_text(json.dumps(kept))
    return config


def run_advice(message: str, before: str) -> subprocess.CompletedProcess:
    """Run the command that a message ends with, as it is printed."""
    command = message.partition(f"{before}: ")[2]
    command = command.replace("python ", f"{shlex.quote(sys.executable)} ", 1)
    return subprocess.run(command, shell=True, capture_output=True, text=True)


@pytest.mark.parametrize("pickled", [False, True])
def test_a_config_without_model_type_is_refused_with_a_command_that_adds_it(pickled, copy) -> None:
    folder = copy("bert")
    whole = without(folder, "model_type", "architectures")
    if pickled:
        as_pickle(folder, "pytorch_model.bin")
    run_advice(refusal(folder), "add that with")
    kept = json.loads((folder / "config.json").read_text())
    assert kept == {name: value for name, value in whole.items() if name != "architectures"}
    if not pickled:
        assert open_model(folder, check=False).family == "bert"


@pytest.mark.parametrize(
    ("family", "body", "name", "said"),
    [
        ("xlm-roberta", "", "copy", 'add the right one, as in "model_type": "camembert"'),
        ("xlm-roberta", "", "my-xlm-roberta", "if it is xlm-roberta, add"),
        ("llama", "", "copy", "gemma, gemma2"),
        ("opt", "", "copy", "if it is opt, add"),
        ("bert", "bert.", "copy", "named as in bert, "),
        ("bert", "bert.", "BERT_ft", "if it is bert, add"),
    ],
)
def test_of_several_families_the_one_in_the_folders_name_is_offered(
    family, body, name, said, copy
) -> None:
    made = copy(family)
    folder = made.rename(made.with_name(name))
    without(folder, "model_type")
    weights = load_file(folder / "model.safetensors")
    bare = {key.removeprefix(body): value for key, value in weights.items()}
    save_file(bare, folder / "model.safetensors")
    assert said in refusal(folder)


def test_a_longer_name_is_another_family(copy) -> None:
    folder = copy("bert")
    without(folder, "model_type")
    weights = load_file(folder / "model.safetensors")
    save_file(
        {f"mobile{name}": value for name, value in weights.items()}, folder / "model.safetensors"
    )
    assert "isn't the config of a transformers model" in refusal(folder)


def test_a_tokenizer_in_the_folder_above_is_offered(copy) -> None:
    folder = copy("bert")
    (folder / "tokenizer.json").rename(folder.parent / "tokenizer.json")
    run_advice(refusal(folder), "belongs to this model")
    assert open_model(folder, check=False).family == "bert"


@pytest.mark.parametrize("keep", [0, 4, 100, 20_000])
def test_cut_weights_are_refused(keep, copy) -> None:
    folder = copy()
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:keep])
    assert "not a complete safetensors file" in refusal(folder)


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


def test_of_a_single_file_and_an_old_index_the_single_file_is_read(copy) -> None:
    folder = copy()
    (folder / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "gone.safetensors"}}'
    )
    assert open_model(folder).parameters > 0


def test_an_adapter_in_a_models_own_folder_is_refused(copy) -> None:
    folder = copy()
    (folder / "adapter_config.json").write_text("{}")
    assert "BASE+ADAPTER" in refusal(folder)


def test_weights_under_another_name_are_refused(copy) -> None:
    folder = copy()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"transformers_weights": "x.bin"}))
    assert "transformers_weights" in refusal(folder)


def test_weights_that_change_while_they_are_read_are_refused(copy, monkeypatch) -> None:
    folder = copy()
    read = load.load_weights

    def slowly(*args):
        found = read(*args)
        path = folder / "model.safetensors"
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        return found

    monkeypatch.setattr(load, "load_weights", slowly)
    assert "changed while it was read" in refusal(folder)


def test_weights_that_do_not_fit_into_memory_are_refused_before_loading(copy, monkeypatch) -> None:
    folder = copy()
    size = checkpoint_size([folder / "model.safetensors"]).weights
    free = SimpleNamespace(available=size * 4 - 1)
    monkeypatch.setattr("psutil.virtual_memory", lambda: free)
    with pytest.raises(NoRoom, match="bfloat16"):
        open_model(folder, device="cpu")
    assert open_model(folder, device="cpu", dtype="bfloat16").parameters == size


def as_pickle(folder: Path, name: str, keep: str = "") -> dict:
    """Replace the weights by a pickle of those whose names start with `keep`."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    kept = {name: value for name, value in weights.items() if name.startswith(keep)}
    torch.save(kept, folder / name)
    return weights


@pytest.mark.parametrize("head", [True, False])
def test_the_advice_for_pickles_converts_them_and_makes_up_no_head(head, copy) -> None:
    """The command in the message, run as it is."""
    folder = copy("bert")
    weights = as_pickle(folder, "pytorch_model.bin", "" if head else "bert.")
    done = run_advice(refusal(folder), "beside it")
    if head:
        lm = open_model(f"{folder}-safetensors", check=False)
        name = "bert.encoder.layer.0.output.dense.weight"
        assert torch.equal(lm.params()[name], weights[name])
        assert lm.has_head
    else:
        assert "AssertionError" in done.stderr
        assert not folder.with_name(f"{folder.name}-safetensors").exists()


def test_pickled_weights_of_an_unnamed_class_are_converted_without_a_head(copy) -> None:
    folder = copy("distilbert")
    without(folder, "architectures")
    weights = as_pickle(folder, "pytorch_model.bin", "distilbert.")
    exec(
        shlex.split(refusal(folder).partition("beside it: ")[2])[2], {}
    )  # in this process: quicker
    lm = open_model(f"{folder}-safetensors", check=False)
    assert not lm.has_head
    name = "distilbert.transformer.layer.1.ffn.lin1.weight"
    assert torch.equal(lm.params()[name], weights[name])
