"""lmprobe: its cache warmed for all layers, unpooled since two poolers are wanted, then pooled.

Batches of 8 (its default); perplexity, which it computes by default, is switched off. It has no
layer 0: its layer i is what block i gives out, our i + 1.
"""

import tempfile
from pathlib import Path
from typing import Any

from lmprobe.cache import set_cache_backend
from lmprobe.cache_backends import LocalCacheBackend
from lmprobe.unified_cache import UnifiedCache
from serve import batches, joined, serve


def prepare(folder: str) -> Any:
    return UnifiedCache(
        folder, layers="all", compute_perplexity=False, cache_pooled=False, device="cpu"
    )


def work(cache: Any, texts: list[str]) -> dict[int, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as home:
        set_cache_backend(LocalCacheBackend(Path(home)))
        cache.warmup(texts)
        return joined([one_batch(cache, batch) for batch in batches(texts)])


def one_batch(cache: Any, batch: list[str]) -> dict[int, dict[str, Any]]:
    states, mask = cache.get_activations(batch)
    layers = len(cache.layer_indices)
    by_layer = states.unflatten(-1, (layers, -1)).float()
    real = mask.bool()
    last = real.long().cumsum(1).argmax(1)
    rows = range(len(batch))
    found = {}
    for number in range(layers):
        hidden = by_layer[:, :, number]
        mean = (hidden * real[:, :, None]).sum(1) / real.sum(1, keepdim=True)
        found[number + 1] = {"last": hidden[list(rows), last], "mean": mean}
    return found


if __name__ == "__main__":
    serve(prepare, work, "lmprobe")
