"""The precision of stored weights is read from the headers, not from the config."""

import pytest
import torch
from safetensors.torch import save_file

from cutaway.models.precision import coarsest, stored_precision, stored_precisions
from tests.tiny import tiny


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_files_have_the_precision(tmp_path, dtype) -> None:
    from transformers import AutoModelForCausalLM

    folder = tiny("llama", tmp_path / "model")
    AutoModelForCausalLM.from_pretrained(folder).to(getattr(torch, dtype)).save_pretrained(folder)
    assert stored_precision(str(folder)) == dtype


def test_a_checkpoint_of_several_precisions_has_the_coarsest(tmp_path) -> None:
    tensors = {"a": torch.ones(2), "b": torch.ones(2).bfloat16(), "c": torch.ones(2).half()}
    save_file(tensors, tmp_path / "one.safetensors")
    save_file({"n": torch.arange(2)}, tmp_path / "two.safetensors")
    found = stored_precisions([tmp_path / "one.safetensors"])
    assert found == {"float32", "float16", "bfloat16"} and coarsest(found) == "bfloat16"
    assert stored_precisions([tmp_path / "two.safetensors"]) == {"float32"}
