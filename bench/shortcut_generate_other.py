"""Self-speculative text of a model named by CUTAWAY_BENCH_MODEL, on texts that it writes itself.

A small model knows little beyond what it was trained on, so sentences of a library would show it
at its worst and sentences of the training set are seldom at hand: it is asked for texts of its own.
"""

import os
from typing import Any

import torch

from bench.report import Lacking
from bench.shortcut_generate import compared, needed
from cutaway.models.lm import LM
from cutaway.models.load import open_model

MODEL = "CUTAWAY_BENCH_MODEL"
HEAT, LENGTH, AT_ONCE, SHORTEST = 0.9, 72, 64, 80


def run(quick: bool, rows: int | None = None) -> dict[str, Any]:
    """As the bench of the bundled model; Lacking without a model."""
    folder = os.environ.get(MODEL, "").strip()
    if not folder:
        raise Lacking(f"{MODEL}, the folder of a small causal model")
    lm = open_model(folder)
    found = compared(lm, own_texts(lm, needed(quick, rows)), quick, rows)
    told = (
        f" {lm.layers} layers of {lm.width} and {lm.vocab:,} words. All texts are the model's own, "
        f"sampled at temperature {HEAT} from nothing."
    )
    return {**found, "text": found["text"] + told}


@torch.inference_mode()
def own_texts(lm: LM, count: int) -> list[str]:
    """So many different texts of more than a line, the same ones at every call."""
    found: dict[str, None] = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for _ in range(count):
            if len(found) >= count:
                break
            start = torch.full((AT_ONCE, 1), lm.tokenizer.bos_token_id)
            said = lm.module.generate(
                start, attention_mask=torch.ones_like(start), do_sample=True, temperature=HEAT,
                top_k=0, max_new_tokens=LENGTH, pad_token_id=lm.pad_id,
            )  # fmt: skip
            texts = lm.tokenizer.batch_decode(said, skip_special_tokens=True)
            found |= dict.fromkeys(t for t in map(_one_line, texts) if len(t) > SHORTEST)
    if len(found) < count:
        raise ValueError(
            f"{lm.name} wrote {len(found)} texts of {SHORTEST} characters, not {count}"
        )
    return list(found)[:count]


def _one_line(text: str) -> str:
    return " ".join(text.split())
