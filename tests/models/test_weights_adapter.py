"""base+adapter: PEFT adapters merged, refused when they don't fit."""

import builtins
import json

import peft
import pytest
import torch

from cutaway.core.errors import BadModel, Mismatch, Missing
from cutaway.models.load import open_model
from cutaway.models.weights import adapter_digest
from tests.tiny import SENTENCES


def make_adapter(folder, base, *, targets=("q_proj", "v_proj"), seed: int = 0, rank: int = 2):
    """A LoRA adapter with random weights for the base, saved as PEFT saves it."""
    from transformers import AutoModelForCausalLM

    config = peft.LoraConfig(r=rank, target_modules=list(targets), task_type="CAUSAL_LM")
    model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=rng) * 0.3)
    model.save_pretrained(folder)
    return folder, model.eval()


def test_a_merged_adapter_computes_what_peft_computes(folder_of, tmp_path) -> None:
    base = folder_of("llama")
    folder, adapted = make_adapter(tmp_path / "adapter", base)
    lm = open_model(f"{base}+{folder}")
    row = lm.tokenizer(SENTENCES[0], return_tensors="pt")
    with torch.no_grad():
        torch.testing.assert_close(lm.module(**row).logits, adapted(**row).logits)
        assert not torch.allclose(lm.module(**row).logits, open_model(base).module(**row).logits)


def test_an_adapted_model_is_an_ordinary_one_with_a_digest_of_its_own(folder_of, tmp_path) -> None:
    base = folder_of("llama")
    one, _ = make_adapter(tmp_path / "one", base, seed=1)
    two, _ = make_adapter(tmp_path / "two", base, seed=2)
    plain, first, second = (
        open_model(base),
        open_model(base, adapter=one),
        open_model(base, adapter=two),
    )
    assert set(first.params()) == set(plain.params())
    assert len({plain.digest, first.digest, second.digest}) == 3
    assert open_model(f"{base}+{one}").digest == first.digest
    assert first.name == f"{base}+{one}"


def test_an_adapter_whose_config_has_infinite_numbers_has_a_digest(folder_of, tmp_path) -> None:
    folder, _ = make_adapter(tmp_path / "adapter", folder_of("llama"))
    plain = adapter_digest(folder)
    config = folder / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"lora_alpha": float("inf")}))
    assert adapter_digest(folder) != plain


def test_an_adapter_of_another_family_is_refused(folder_of, tmp_path) -> None:
    folder, _ = make_adapter(tmp_path / "adapter", folder_of("llama"))
    with pytest.raises(Mismatch, match="doesn't fit this base"):
        open_model(folder_of("gpt2"), adapter=folder)


@pytest.mark.parametrize("change", [{"num_hidden_layers": 2}, {"intermediate_size": 24}])
def test_an_adapter_of_another_size_is_refused(change, folder_of, tmp_path) -> None:
    base = folder_of("llama", **change)
    folder, _ = make_adapter(
        tmp_path / "adapter", folder_of("llama"), targets=("up_proj", "q_proj")
    )
    with pytest.raises(Mismatch, match="doesn't fit this base"):
        open_model(base, adapter=folder)


def test_a_folder_that_is_no_adapter_is_refused(folder_of) -> None:
    with pytest.raises(BadModel, match="not a PEFT adapter"):
        open_model(folder_of("llama"), adapter=folder_of("gpt2"))


def test_an_adapter_without_weights_to_merge_is_refused(folder_of, tmp_path) -> None:
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(folder_of("llama"))
    config = peft.PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    peft.get_peft_model(base, config).save_pretrained(tmp_path)
    with pytest.raises(BadModel, match="PROMPT_TUNING"):
        open_model(folder_of("llama"), adapter=tmp_path)


def test_a_pickled_adapter_is_refused(folder_of, tmp_path) -> None:
    folder, _ = make_adapter(tmp_path / "adapter", folder_of("llama"))
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(BadModel, match="pickle"):
        open_model(folder_of("llama"), adapter=folder)


def test_an_adapter_alone_is_met_with_the_name_to_open_it_by(folder_of, tmp_path) -> None:
    folder, _ = make_adapter(tmp_path / "adapter", folder_of("llama"))
    with pytest.raises(BadModel, match=rf"open it as '{folder_of('llama')}\+{folder}'"):
        open_model(folder)


def test_without_peft_the_line_that_installs_it_is_given(folder_of, tmp_path, monkeypatch) -> None:
    folder, _ = make_adapter(tmp_path / "adapter", folder_of("llama"))
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "peft":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(Missing, match=r"pip install 'cutaway\[peft\]'"):
        open_model(folder_of("llama"), adapter=folder)
