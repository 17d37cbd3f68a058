"""The full p on disk."""

import pytest
import torch

from cutaway import nextword
from cutaway.console import Console
from cutaway.methods.nextword.output_head import make_output_head
from cutaway.methods.nextword.save_p import p_size_bytes
from tests.methods.nextword.toys import PROMPT, TEXTS


def test_p_is_written_as_shards_of_half_precision(tmp_path, toy, monkeypatch) -> None:
    from safetensors.torch import load_file

    size = 100 * make_output_head(toy).vocab
    monkeypatch.setattr("cutaway.methods.nextword.save_p.SHARD_BYTES", size)
    result = nextword(
        model=toy, data=TEXTS, features="f", prompt=False, quiet=True, save_p=True,
        runs=str(tmp_path / "runs"),
    )  # fmt: skip
    shards = sorted((result.path / "p").glob("*.safetensors"))
    assert len(shards) == 3, "50 rows in each shard"
    p = torch.cat([load_file(shard)["p"] for shard in shards])
    assert p.dtype == torch.float16 and p.shape == (len(TEXTS), make_output_head(toy).vocab)
    torch.testing.assert_close(p.float().sum(1), torch.ones(len(TEXTS)), atol=2e-3, rtol=0)


def test_the_size_of_p_is_reported_before_anything_is_computed(toy, tmp_path, monkeypatch) -> None:
    printed: list[str] = []

    def stop(console: Console, text: str) -> None:
        printed.append(text)
        raise KeyboardInterrupt

    monkeypatch.setattr(Console, "print", stop)
    with pytest.raises(KeyboardInterrupt):
        nextword(model=toy, data=TEXTS, prompt_text=PROMPT, save_p=True, runs=str(tmp_path / "r"))
    assert printed == ["--save-p writes p of 120 texts, 2 times: 0.00 GB in half precision."]
    assert not (tmp_path / "r").exists()


def test_the_size_is_two_bytes_per_text_and_token(toy) -> None:
    assert p_size_bytes(toy, 10) == 20 * make_output_head(toy).vocab
