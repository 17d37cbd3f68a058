"""A fine-tuning step: ours against the plain transformers loop, and what batches waste.

The plain loop asks the model for all its logits, takes the label words' at the mask, and steps; it
draws its batches at random, as a DataLoader does. Both train the same weights on the same rows.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM

from bench.report import row, spread, told
from cutaway.core.textset import TextSet
from cutaway.data.load import load_text_set
from cutaway.models.load import open_model
from cutaway.models.tokens import pad
from cutaway.training.batch_order import make_batch_order
from cutaway.training.gradients import frozen_others, gradients_enabled
from cutaway.training.loop import training_step
from cutaway.training.plan import TrainingPlan, make_optimizer
from cutaway.training.task_model import TaskModel, make_task_model
from cutaway.training.task_split import TaskSplit, task_from_labels
from cutaway.training.trainable_params import select_trainable_params

LAYERS, WIDTH, VOCAB, BATCH, STEPS = 6, 384, 30522, 16, 4
TEMPLATE, WORDS = "{text} It was {mask}.", ("bad", "good")
PLAN = TrainingPlan(steps=1, lr=1e-3, optimizer="sgd", weight_decay=1e-4)


def run(quick: bool, rows: int | None = None, rounds: int = 5) -> dict[str, Any]:
    """Seconds per step both ways, and padded tokens per real one."""
    layers, width, vocab = (2, 32, 2000) if quick else (LAYERS, WIDTH, VOCAB)
    texts = sentences(rows or 256)
    with tempfile.TemporaryDirectory() as folder:
        pupil = pupil_of(Path(folder), texts, layers, width, vocab)
        params = select_trainable_params(pupil)
        order = make_batch_order(pupil.examples.rows, BATCH, seed=0)
        blind = np.random.default_rng(0).permutation(len(texts)).reshape(-1, BATCH)
        seconds: dict[str, list[float]] = {"ours": [], "plain": []}
        with frozen_others(pupil.module, params), gradients_enabled(params):
            for _ in range(1 if quick else rounds):
                seconds["ours"].append(timed(ours(pupil, params, order)))
                seconds["plain"].append(timed(plain(pupil, params, blind)))
    wasted = (
        waste(pupil, [order(step) for step in range(order.steps_per_epoch)]),
        waste(pupil, blind),
    )
    mine, theirs = (statistics.median(seconds[name]) for name in ("ours", "plain"))
    return {
        "title": "Fine-tuning a masked model with a template",
        "text": f"Bert with {layers} layers of {width}, {vocab:,} words, random weights; "
        f"{len(texts)} sentences, batches of {BATCH}, SGD on the blocks, one thread per core.",
        "table": [
            row("seconds per step against the plain loop", told(spread(seconds["ours"]), "s"),
                told(spread(seconds["plain"]), "s"), theirs / mine, ">= 1x", theirs / mine >= 1),
            row("padded tokens per real token", f"{wasted[0]:.2f}", f"{wasted[1]:.2f}",
                wasted[1] / wasted[0]),
        ],
        "measured": {name: spread(values) for name, values in seconds.items()},
    }  # fmt: skip


def sentences(rows: int) -> TextSet:
    """Sentences of very different lengths with labels in turn, a whole number of batches."""
    found = load_text_set("docs", as_task="text", limit=rows, seed=0).texts
    many = len(found) // BATCH * BATCH
    return TextSet("docs", found[:many], np.arange(many) % 2, "binary", ("no", "yes"))


def pupil_of(folder: Path, texts: TextSet, layers: int, width: int, vocab: int) -> TaskModel:
    """A masked model of this shape, asked about the sentences."""
    from tests.tiny import tiny_tokenizer

    tokenizer = tiny_tokenizer("bert", [*texts.texts, *WORDS * 9, "It was"], size=vocab)
    tokenizer.model_max_length = 128
    config = BertConfig(
        vocab_size=max(vocab, len(tokenizer)), hidden_size=width, num_hidden_layers=layers,
        num_attention_heads=width // 32, intermediate_size=4 * width, max_position_embeddings=128,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    lm = open_model(str(folder), check=False)
    none = np.arange(0)
    lesson = TaskSplit(task_from_labels(texts), texts, np.arange(len(texts)), none, none)
    return make_task_model(lm, lesson, "prompt", template=TEMPLATE, words=WORDS)


def ours(
    pupil: TaskModel, params: dict[str, Any], order: Callable[[int], Any]
) -> Callable[[int], Any]:
    """A step of the shared loop."""
    optimizer = make_optimizer(params, PLAN)

    def loss(step: int) -> dict[str, torch.Tensor]:
        return {"loss": pupil.losses(order(step)).mean()}

    return lambda step: training_step(params, optimizer, loss, PLAN, step)


def plain(pupil: TaskModel, params: dict[str, Any], batches: Any) -> Callable[[int], Any]:
    """The step most scripts have."""
    lm, asked = pupil.lm, pupil.examples
    optimizer = torch.optim.SGD(list(params.values()), lr=1e-3, weight_decay=1e-4)
    labels = torch.from_numpy(asked.labels)

    def step(number: int) -> None:
        rows = batches[number]
        ids, mask = pad([asked.rows[i] for i in rows], lm.pad_id)
        logits = lm.module(input_ids=ids, attention_mask=mask.long()).logits
        at = (ids == lm.tokenizer.mask_token_id).long().argmax(dim=1)
        chosen_words = logits[torch.arange(len(ids)), at][:, asked.word_ids]
        torch.nn.functional.cross_entropy(chosen_words, labels[rows]).backward()
        torch.nn.utils.clip_grad_norm_(list(params.values()), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def timed(step: Callable[[int], Any]) -> float:
    """Seconds per step, after one that warms up."""
    step(0)
    start = time.perf_counter()
    for number in range(1, STEPS + 1):
        step(number)
    return (time.perf_counter() - start) / STEPS


def waste(pupil: TaskModel, batches: Any) -> float:
    """Tokens that go through the model for each real one."""
    lengths = np.array([len(row) for row in pupil.examples.rows])
    padded = sum(len(rows) * lengths[rows].max() for rows in batches)
    return float(padded / lengths.sum())
