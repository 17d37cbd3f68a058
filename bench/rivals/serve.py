"""The loop around a rival: opens its model once, then times one extraction per line of stdin.

Standard library only: it is run by environments that know nothing of Cutaway. Arguments: model
folder, JSON file of texts, file for the vectors of one layer (to check that the work is equal).
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MARK = "@@ "
BATCH = 32
WARM = 4
Vectors = dict[int, dict[str, Any]]


def serve(
    prepare: Callable[[str], Any], work: Callable[[Any, list[str]], Vectors], package: str
) -> None:
    """Answer each line on stdin with the seconds of one extraction of all texts."""
    from importlib.metadata import version

    folder, texts_file, check_file = sys.argv[1:4]
    # Libraries print what they like: our answers keep stdout for themselves.
    answers, sys.stdout = sys.stdout, sys.stderr
    texts = json.loads(Path(texts_file).read_text("utf-8"))
    state = prepare(folder)
    work(state, texts[:WARM])
    _answer(answers, {"ready": True, "version": version(package)})
    for _ in sys.stdin:
        start = time.perf_counter()
        vectors = work(state, texts)
        seconds = time.perf_counter() - start
        middle = max(vectors) // 2
        _keep(Path(check_file), middle, vectors[middle])
        _answer(answers, {"seconds": seconds, "layers": len(vectors), "checked": middle})


def _answer(stream: Any, value: dict[str, Any]) -> None:
    stream.write(MARK + json.dumps(value) + "\n")
    stream.flush()


def _keep(file: Path, layer: int, pooled: dict[str, Any]) -> None:
    kept = {name: value.float().tolist() for name, value in pooled.items()}
    file.write_text(json.dumps({"layer": layer, **kept}))


def batches(texts: list[str]) -> list[list[str]]:
    """Batches of 32 in file order, for tools that leave batching to their user."""
    return [texts[i : i + BATCH] for i in range(0, len(texts), BATCH)]


def pooled(hidden: Any, lengths: list[int], side: str) -> dict[str, Any]:
    """Last and mean over the real tokens of a batch padded on one side."""
    import torch

    count = torch.tensor(lengths)[:, None]
    place = torch.arange(hidden.shape[1])[None, :]
    mask = place < count if side == "right" else place >= hidden.shape[1] - count
    last = mask.long().cumsum(1).argmax(1)
    total = (hidden * mask[:, :, None]).sum(1)
    return {"last": hidden[torch.arange(len(lengths)), last], "mean": total / count}


def joined(parts: list[Vectors]) -> Vectors:
    """The batches' vectors put together, by layer and pooler."""
    import torch

    return {
        layer: {p: torch.cat([part[layer][p] for part in parts]) for p in ("last", "mean")}
        for layer in parts[0]
    }
