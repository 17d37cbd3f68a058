"""Cutaway in the rivals' place: extraction into an empty cache, and everything read back."""

import os
import tempfile
from typing import Any

from serve import serve

from cutaway.core.textset import TextSet
from cutaway.extract.activations import extract
from cutaway.extract.request import ExtractionRequest
from cutaway.models.load import open_model


def prepare(folder: str) -> Any:
    return open_model(folder, device="cpu", check=False)


def work(lm: Any, texts: list[str]) -> dict[int, dict[str, Any]]:
    layers, pools = tuple(range(lm.layers + 1)), ("last", "mean")
    with tempfile.TemporaryDirectory() as home:
        os.environ["CUTAWAY_HOME"] = home
        features = extract(
            lm, TextSet("bench", tuple(texts)), ExtractionRequest(layers=layers, pools=pools)
        )
        return {layer: {p: features.column(layer, p) for p in pools} for layer in layers}


if __name__ == "__main__":
    serve(prepare, work, "cutaway")
