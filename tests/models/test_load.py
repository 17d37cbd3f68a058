"""Opening a model: its facts, its context length, invalid options."""

from pathlib import Path

import pytest

from cutaway.core.errors import BadSpec
from cutaway.models import load
from cutaway.models.anatomy import ANATOMIES
from cutaway.models.load import open_model
from tests.models.breaking import refusal
from tests.tiny import SENTENCES


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
        ({"device": "toaster"}, "device must be auto, cpu, cuda, cuda:N, mps or map"),
    ],
)
def test_options_that_cannot_be_are_refused(options, said, folder_of) -> None:
    assert said in refusal(folder_of("gpt2"), **options)


def test_a_broken_tokenizer_is_refused(copy) -> None:
    folder = copy()
    (folder / "tokenizer.json").write_text('{"model": 1}')
    assert "tokenizer" in refusal(folder)


def test_an_incomplete_device_name_says_what_to_do(folder_of) -> None:
    with pytest.raises(BadSpec, match="On this machine: auto, cpu, map"):
        open_model(folder_of("gpt2"), device="cuda:99")


def test_a_checkpoint_that_changes_while_it_is_read_is_refused(copy, monkeypatch) -> None:
    folder, real = copy(), load.load_weights

    def load_and_change(*args: object) -> object:
        config = folder / "config.json"
        config.write_text(config.read_text().replace('"n_head"', '"n_head_"'))
        return real(*args)

    monkeypatch.setattr(load, "load_weights", load_and_change)
    assert "changed while it was read" in refusal(folder)


def test_a_plus_separates_base_and_adapter_unless_it_is_in_a_folders_name(tmp_path) -> None:
    folder = tmp_path / "one+two"
    assert load.split_adapter(str(folder), None) == (str(tmp_path / "one"), "two")
    folder.mkdir()
    assert load.split_adapter(str(folder), None) == (str(folder), None)
    assert load.split_adapter("base", "adapter") == ("base", "adapter")
