"""What the extraction benches read with, and what they read."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from cutaway.core.textset import TextSet
from cutaway.data.load import load_text_set
from cutaway.models.load import open_model

DATA = "CUTAWAY_BENCH_DATA"
BUNDLED = "smollm2-135m"


def sentences(rows: int) -> TextSet:
    """The first `rows` sentences of mixed length: Wikipedia's where there are any, else `docs`."""
    folder = os.environ.get(DATA, "").strip()
    file = Path(folder) / "wiki_sentences" / "wiki_20k.tsv"
    if not folder or not file.is_file():
        return load_text_set("docs", limit=rows)
    lines = file.read_text("utf-8").splitlines()[1:]
    texts = dict.fromkeys(line.partition("\t")[2].strip() for line in lines)
    return TextSet("Wikipedia", tuple(t for t in texts if t)[:rows])


def bundled_folder() -> Path:
    """The bundled model as a plain checkpoint that any tool can open."""
    from cutaway.models.checkpoint import fetch_checkpoint

    return fetch_checkpoint(BUNDLED).folder


def make_gpt2(folder: Path) -> Path:
    """A random model of gpt2's size (12 layers of 768), with the bundled model's tokenizer."""
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = _tokenizer()
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    return _save(folder, GPT2LMHeadModel, GPT2Config(vocab_size=len(tokenizer), **ids), tokenizer)


def make_small(folder: Path, layers: int = 4, width: int = 256) -> Path:
    """A random llama-shaped model, by default 4 layers of 256: quick enough for 20,000 rows."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = _tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=width, intermediate_size=width * 688 // 256,
        num_hidden_layers=layers,
        num_attention_heads=4, tie_word_embeddings=True, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    return _save(folder, LlamaForCausalLM, config, tokenizer)


MODELS = {"gpt2-sized": make_gpt2, "small": make_small}


def opened(name: str, work: Path) -> Any:
    """The bundled model, or a random one made on the spot under `work`."""
    source = name if name == BUNDLED else MODELS[name](work / name)
    return open_model(str(source), device="cpu", check=False)


def _tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(bundled_folder())


def _save(folder: Path, model: Any, config: Any, tokenizer: Any) -> Path:
    # transformers draws initial weights from the global generator: it is put back afterwards.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@contextmanager
def fresh_home() -> Iterator[Path]:
    """An empty CUTAWAY_HOME for as long as it lasts."""
    before = os.environ.get("CUTAWAY_HOME")
    with tempfile.TemporaryDirectory(prefix="cutaway-bench-") as folder:
        os.environ["CUTAWAY_HOME"] = folder
        try:
            yield Path(folder)
        finally:
            os.environ.pop("CUTAWAY_HOME")
            os.environ.update({} if before is None else {"CUTAWAY_HOME": before})
