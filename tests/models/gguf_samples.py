"""GGUF files of a tiny llama, as llama.cpp's converter writes them."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.tiny import tiny

NAMES = {
    "model.embed_tokens.": "token_embd.", "model.norm.": "output_norm.", "lm_head.": "output.",
    "model.layers.": "blk.", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip
LENGTH = 64


def write_gguf(
    path: Path, checkpoint: Path, *, without: tuple[str, ...] = (), **other: Any
) -> Path:
    """The checkpoint as a GGUF file.

    `without` names tensors or metadata to leave out; `other` are metadata, with `__` for a dot.
    """
    config = json.loads((checkpoint / "config.json").read_text())
    writer = gguf.GGUFWriter(path, other.pop("architecture", "llama"))
    fields = metadata(checkpoint, config) | {k.replace("__", "."): v for k, v in other.items()}
    for key, value in fields.items():
        if key not in without:
            _add(writer, key, value)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name, value in load_file(checkpoint / "model.safetensors").items():
        for ours, theirs in NAMES.items():
            name = name.replace(ours, theirs)
        for part, count in heads.items():
            if f".{part}." in name:
                value = _permuted(value, count)
        if name not in without:
            writer.add_tensor(name, value.numpy().astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def metadata(checkpoint: Path, config: dict[str, Any], rows: int = 0) -> dict[str, Any]:
    """What the file says about model and tokenizer; of the latter only, if the config is empty.

    Tokens are made up for embeddings with more rows.
    """
    model = json.loads((checkpoint / "tokenizer.json").read_text())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    tokens += [f"<more {i}>" for i in range(len(tokens), rows)]
    shape = {} if not config else {
        "llama.block_count": config["num_hidden_layers"],
        "llama.context_length": LENGTH,
        "llama.embedding_length": config["hidden_size"],
        "llama.feed_forward_length": config["intermediate_size"],
        "llama.attention.head_count": config["num_attention_heads"],
        "llama.attention.head_count_kv": config["num_key_value_heads"],
        "llama.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        "llama.rope.freq_base": 10000.0,
        "llama.vocab_size": len(tokens),
    }  # fmt: skip
    return shape | {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if i < 3 else 1 for i in range(len(tokens))],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": True,
    }


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def _permuted(value: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of queries and keys in llama.cpp's order."""
    inner = value.shape[0] // heads // 2
    return value.reshape(heads, 2, inner, -1).transpose(1, 2).reshape(value.shape).contiguous()


# Fields of configs, and the writer's methods that take them.
CONFIG_FIELDS = {
    "num_hidden_layers": "block_count", "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length", "num_attention_heads": "head_count",
    "num_key_value_heads": "head_count_kv", "head_dim": "key_length",
    "rms_norm_eps": "layer_norm_rms_eps", "layer_norm_epsilon": "layer_norm_eps",
    "norm_epsilon": "layer_norm_eps", "layer_norm_eps": "layer_norm_eps",
}  # fmt: skip


def write_family(path: Path, checkpoint: Path, family: str) -> Path:
    """The checkpoint of a family that has llama.cpp's order of weights, as a GGUF file."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    config = model.config
    writer = gguf.GGUFWriter(path, family)
    for name, method in CONFIG_FIELDS.items():
        if getattr(config, name, None):
            getattr(writer, f"add_{method}")(getattr(config, name))
    writer.add_feed_forward_length(getattr(config, "intermediate_size", 4 * config.hidden_size))
    for key, value in metadata(checkpoint, {}, config.vocab_size).items():
        if key.startswith("tokenizer."):
            _add(writer, key, value)
    architecture = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == family)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    for name, value in model.state_dict().items():
        module, _, kind = name.rpartition(".")
        if not (module == "lm_head" and config.tie_word_embeddings):
            # GPT-2's linear layers are transposed.
            turned = type(model.get_submodule(module)).__name__ == "Conv1D" and kind == "weight"
            array = (value.T if turned else value).contiguous().numpy()
            writer.add_tensor(f"{names.get_name(module)}.{kind}", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def small_gguf(folder: Path) -> bytes:
    """The bytes of a GGUF file of a few kilobytes, for the fuzzer."""
    writer = gguf.GGUFWriter(folder / "small.gguf", "llama")
    writer.add_uint32("llama.block_count", 1)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    writer.add_array("tokenizer.ggml.scores", [0.5, 1.5])
    writer.add_tensor("token_embd.weight", np.ones((2, 4), np.float32))
    writer.add_tensor("output_norm.weight", np.ones(4, np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return (folder / "small.gguf").read_bytes()


def sample(folder: Path) -> tuple[Path, Path]:
    """A tiny llama as a checkpoint and as a GGUF file."""
    checkpoint = tiny("llama", folder / "original")
    return checkpoint, write_gguf(folder / "llama.gguf", checkpoint)
