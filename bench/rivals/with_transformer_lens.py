"""TransformerLens: run_with_cache per batch of 32 on the residual stream, pooled afterwards.

The tokens are the ones the others read: no start token is put in front.
"""

from typing import Any

import torch
from serve import batches, joined, pooled, serve
from transformer_lens.model_bridge import TransformerBridge


def prepare(folder: str) -> Any:
    return TransformerBridge.boot_transformers(folder, device="cpu", dtype=torch.float32)


def work(bridge: Any, texts: list[str]) -> dict[int, dict[str, Any]]:
    return joined([one_batch(bridge, batch) for batch in batches(texts)])


def one_batch(bridge: Any, batch: list[str]) -> dict[int, dict[str, Any]]:
    tokens = bridge.to_tokens(batch, prepend_bos=False, padding_side="right")
    lengths = [len(ids) for ids in bridge.tokenizer(batch, add_special_tokens=False)["input_ids"]]
    layers = bridge.cfg.n_layers
    names = ["blocks.0.hook_resid_pre", *(f"blocks.{i}.hook_resid_post" for i in range(layers))]
    with torch.no_grad():
        _, cache = bridge.run_with_cache(tokens, names_filter=names)
    return {n: pooled(cache[name], lengths, "right") for n, name in enumerate(names)}


if __name__ == "__main__":
    serve(prepare, work, "transformer_lens")
