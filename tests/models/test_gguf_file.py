"""A GGUF file is opened as the checkpoint it was made from, converted once, or refused in words."""

import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from cutaway.core.errors import BadModel, Missing, NoRoom
from cutaway.models import gguf_file
from cutaway.models.gguf_file import find_gguf_file
from cutaway.models.hooks import collect_states
from cutaway.models.load import open_model
from tests.models.gguf_samples import LENGTH, sample, write_family, write_gguf
from tests.tiny import SENTENCES, tiny


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> tuple[Path, Path]:
    return sample(tmp_path_factory.mktemp("gguf"))


@pytest.fixture
def own_home(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_states_and_tokens_are_those_of_the_original(pair) -> None:
    original, converted = (open_model(path) for path in pair)
    texts = [*SENTENCES, "two  spaces\n\n12 é"]
    ours, theirs = (lm.tokenizer(texts)["input_ids"] for lm in (converted, original))
    assert ours == theirs
    assert ours[0][0] == converted.tokenizer.bos_token_id
    assert converted.context == LENGTH
    before, after = original.read(texts, pool="mean"), converted.read(texts, pool="mean")
    for layer in before:
        torch.testing.assert_close(after[layer], before[layer], rtol=1e-5, atol=1e-6)


FAMILY_OPTIONS = {
    "falcon": {}, "gpt2": {"n_positions": 1024}, "qwen2": {}, "qwen3": {"head_dim": 128},
    "stablelm": {}, "starcoder2": {},
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILY_OPTIONS)
def test_other_architectures_have_the_states_of_the_original(family, own_home, tmp_path) -> None:
    tiny(family, tmp_path / "original", **FAMILY_OPTIONS[family])
    file = write_family(tmp_path / "m.gguf", tmp_path / "original", family)
    converted, original = open_model(file), open_model(tmp_path / "original")
    assert converted.family == original.family == family
    ids = torch.tensor([[5, 6, 7, 8, 9, 10]])
    mask = torch.ones_like(ids, dtype=torch.bool)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf", dtype=torch.float32)
    with torch.no_grad():
        ours, theirs = (collect_states(lm, ids, mask).layers for lm in (converted, original))
        read = plain(ids, output_hidden_states=True).hidden_states
    for layer in theirs:
        torch.testing.assert_close(ours[layer], theirs[layer], rtol=1e-5, atol=1e-6)
    for layer in range(original.layers):
        torch.testing.assert_close(ours[layer], read[layer], rtol=1e-5, atol=1e-6)


def test_sizes_that_transformers_does_not_read_are_named_in_the_refusal(own_home, tmp_path) -> None:
    tiny("gpt2", tmp_path / "original", n_positions=64)
    file = write_family(tmp_path / "m.gguf", tmp_path / "original", "gpt2")
    with pytest.raises(BadModel, match=r"can't be converted: .*size mismatch for .*wpe.weight"):
        open_model(file)


def test_a_file_is_converted_once_and_without_a_word(pair, own_home, capfd, monkeypatch) -> None:
    first = open_model(pair[1])
    monkeypatch.setattr(gguf_file, "_convert", None)
    assert open_model(str(pair[1])).identity == first.identity
    out, err = capfd.readouterr()
    # No progress bar; only the warning that the weights are random.
    assert out == "" and all("The loss on plain English" in line for line in err.splitlines())
    (folder,) = (own_home / "models").iterdir()
    assert folder.name == f"llama-{first.digest[:12]}"


def test_another_file_has_another_digest(pair, own_home, tmp_path) -> None:
    other = write_gguf(tmp_path / "llama.gguf", pair[0], general__name="other")
    assert open_model(other, check=False).digest != open_model(pair[1], check=False).digest


def test_an_interrupted_conversion_starts_again(pair, own_home, monkeypatch) -> None:
    def die(*_) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(gguf_file, "_write_digest", die)
        with pytest.raises(KeyboardInterrupt):
            open_model(pair[1])
    assert list((own_home / "models").iterdir()) == []
    assert open_model(pair[1]).layers == 3


def test_the_folder_of_one_gguf_file_is_a_model(pair, own_home, tmp_path) -> None:
    folder = tmp_path / "download"
    folder.mkdir()
    shutil.copy(pair[1], folder / "weights.GGUF")
    (folder / "config.json").write_text("{}")
    assert open_model(folder, check=False).digest == open_model(pair[1], check=False).digest
    shutil.copy(pair[1], folder / "other.gguf")
    with pytest.raises(BadModel, match=r"2 GGUF files: 'other.gguf', 'weights.GGUF'"):
        open_model(folder)
    # Beside safetensors they are ignored.
    (folder / "model.safetensors").touch()
    assert find_gguf_file(folder) is None


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"architecture": "clip"}, BadModel, "architecture 'clip'.*Known: .*llama"),
        ({"without": ("tokenizer.ggml.tokens",)}, Missing, "has no tokenizer"),
        ({"tokenizer__ggml__model": "rwkv"}, BadModel, "can't be converted: .*rwkv"),
        ({"split__count": 3}, BadModel, "one of 3 parts.*--merge"),
        ({"without": ("blk.1.ffn_up.weight",)}, BadModel, "lacks 1 weights.*layers.1.mlp.up_proj"),
        ({"llama__block_count": 900_000}, BadModel, "900,000 layers.*another model"),
        ({"llama__embedding_length": 1 << 30}, BadModel, "another model|can't be converted"),
        ({"tokenizer__ggml__bos_token_id": 10_000}, BadModel, "can't be converted"),
        ({"architecture": "t5"}, BadModel, "encoder-decoder|can't be converted"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)  # fmt: skip
def test_what_cannot_be_converted_is_refused_in_one_sentence(
    pair, own_home, tmp_path, options, error, words
) -> None:
    path = write_gguf(tmp_path / "odd.gguf", pair[0], **options)
    with pytest.raises(error, match=words) as caught:
        open_model(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(own_home.glob("models/*"))


def test_a_model_larger_than_memory_or_disk_is_refused(pair, own_home, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(gguf_file, "BYTES_PER_WEIGHT", 1 << 40)
        with pytest.raises(NoRoom, match="GB of memory"):
            open_model(pair[1])
    monkeypatch.setattr(gguf_file, "SPARE_BYTES", 1 << 60)
    with pytest.raises(NoRoom, match="CUTAWAY_HOME"):
        open_model(pair[1])


def test_settings_that_transformers_ignores_are_applied_and_noted(pair, own_home, tmp_path) -> None:
    digits = write_gguf(
        tmp_path / "digits.gguf", pair[0], tokenizer__ggml__pre="smollm",
        tokenizer__ggml__add_bos_token=False, tokenizer__ggml__add_eos_token=True,
    )  # fmt: skip
    lm = open_model(digits, check=False)
    words = lm.tokenizer.convert_ids_to_tokens(lm.tokenizer("345")["input_ids"])
    assert words == ["3", "4", "5", "</s>"]
    assert any("'</s>' is added" in note for note in lm.notes)
    unknown = write_gguf(tmp_path / "unknown.gguf", pair[0], tokenizer__ggml__pre="new-rule")
    assert any("'new-rule'" in note for note in open_model(unknown, check=False).notes)
