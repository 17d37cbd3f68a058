"""nnsight: a trace per batch of 32, every block's output saved, pooled afterwards."""

from typing import Any

import torch
from nnsight import TransformersModel
from serve import batches, joined, pooled, serve


def prepare(folder: str) -> Any:
    return TransformersModel(folder, task="text-generation", dispatch=True, dtype=torch.float32)


def work(model: Any, texts: list[str]) -> dict[int, dict[str, Any]]:
    return joined([one_batch(model, batch) for batch in batches(texts)])


def one_batch(model: Any, batch: list[str]) -> dict[int, dict[str, Any]]:
    lengths = [len(ids) for ids in model.tokenizer(batch)["input_ids"]]
    states = []
    with torch.no_grad(), model.trace(batch):
        states.append(model.model.layers[0].input.save())
        for layer in model.model.layers:
            states.append(layer.output.save())
    return {n: pooled(hidden, lengths, "left") for n, hidden in enumerate(states)}


if __name__ == "__main__":
    serve(prepare, work, "nnsight")
