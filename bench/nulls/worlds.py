"""Real runs of the verbs on tiny models in which nothing can be found.

Labels are coin flips, so every score is one of chance and all scores are equal; models have random
weights; regularisers have strength 0, so that all trainings are the same.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from tests.tiny import SENTENCES, tiny

import cutaway
from bench.nulls.tally import Verdict, World
from cutaway.core.textset import TextSet
from cutaway.data.load import load_text_set
from cutaway.models.load import open_model, random_twin

CHANCE = 0.5
ROWS = 160
TASK = """
name = "coin"
description = "Heads or tails?"
kind = "binary"
classes = ["bad", "good"]
label_words = ["bad", "good"]
[autoregressive]
template = "{text} It was"
words = ["bad", "good"]
[columns]
text = ["text"]
label = ["label"]
[labels]
names = { "0" = "bad", "1" = "good" }
"""
SUMS = "gen:arithmetic?n=40,ops=+,digits=1-2,dev=10,test=20"
SHORT = {"steps": 4, "every": 2, "batch": 8, "quiet": True}


class Workshop:
    """A folder with a tiny model, texts and a task, for all worlds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        texts = (*SENTENCES, *["It was good and it was bad, red and great."] * 9)
        self.model = str(tiny("llama", folder / "model", texts=texts))
        self.task, self.other_task = (str(folder / f"{name}.toml") for name in ("coin", "die"))
        Path(self.task).write_text(TASK)
        self.corpus = str(folder / "corpus.txt")
        Path(self.corpus).write_text("\n".join(SENTENCES * 4) + "\n")
        Path(self.other_task).write_text(TASK.replace('"coin"', '"die"'))

    @cached_property
    def lm(self) -> Any:
        """The tiny model, opened once."""
        return open_model(self.model, check=False)

    @cached_property
    def texts(self) -> TextSet:
        """Sentences with their true labels."""
        return load_text_set(f"gen:sentiment?n={ROWS}")

    def coins(self, seed: int, n: int = ROWS) -> TextSet:
        """The texts with coin flips as labels."""
        labels = np.random.default_rng(seed).integers(2, size=n)
        return replace(
            self.texts, name=f"coins-{seed}", texts=self.texts.texts[:n], labels=labels,
            classes=("bad", "good"), parts=None,
        )  # fmt: skip

    def training(self, seed: int) -> dict[str, Any]:
        """A short training on a few rows."""
        return {"task": self.task, "shots": 16, "lr": 0.05, "seed": seed, **SHORT}

    @contextmanager
    def runs(self) -> Iterator[str]:
        """A folder of runs that is removed again."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            yield folder


def probe_coins(shop: Workshop) -> World:
    """Every layer, pooler, classifier and baseline is at chance."""

    def run(seed: int) -> Verdict:
        with shop.runs() as runs:
            found = cutaway.probe(
                model=shop.lm, data=shop.coins(seed), layers="all", pool="last,mean",
                classifier="lda,ridge", repeats=5, seed=seed, runs=runs, quiet=True,
            )  # fmt: skip
        return Verdict(found.verdict, CHANCE)

    return World("shuffled labels", "probe", ("difference", "interval"), PROBE, run, real=True)


def probe_random_weights(shop: Workshop) -> World:
    """The model itself has random weights, so pretraining adds nothing; the labels are real."""

    def run(seed: int) -> Verdict:
        with shop.runs() as runs:
            found = cutaway.probe(
                model=random_twin(shop.lm, seed=1000 + seed), data=shop.texts, layers="all",
                classifier="lda", repeats=5, baselines="twin", seed=seed, runs=runs, quiet=True,
            )  # fmt: skip
        return Verdict(found.verdict)

    return World("random weights", "probe", ("difference",), PROBE_TWIN, run, real=True)


def nextword_coins(shop: Workshop) -> World:
    """Every feature, prompt and baseline is at chance."""

    def run(seed: int) -> Verdict:
        with shop.runs() as runs:
            found = cutaway.nextword(
                model=shop.lm, data=shop.coins(seed), class_words=["bad", "good"],
                prompt_text=" It was", features="f,phi_p,classwords,zeroshot", diagnostics=False,
                seed=seed, runs=runs, quiet=True,
            )  # fmt: skip
        return Verdict(found.verdict, CHANCE)

    return World(
        "shuffled labels", "nextword", ("difference", "interval"), NEXTWORD, run, real=True
    )


def finetune_coins(shop: Workshop) -> World:
    """Training rows say nothing about test rows."""

    def run(seed: int) -> Verdict:
        with shop.runs() as runs:
            found = cutaway.graft.finetune(
                model=shop.lm, data=shop.coins(seed), **shop.training(seed), runs=runs,
                out=f"{runs}/tuned",
            )  # fmt: skip
        return Verdict(found.verdict, CHANCE)

    return World(
        "shuffled labels", "finetune", ("difference", "interval"), FINETUNE, run, real=True
    )


def graft_coins(shop: Workshop) -> World:
    """The tuned model is the base with weights that help nothing; so is every mask."""

    def run(seed: int) -> Verdict:
        coins = shop.coins(seed)
        with shop.runs() as runs:
            tuned, skill = f"{runs}/tuned", f"{runs}/skill.safetensors"
            cutaway.graft.finetune(
                model=shop.lm, data=coins, **shop.training(seed), runs=runs, out=tuned
            )
            learned = cutaway.graft.learn(
                base=shop.lm, tuned=tuned, task=shop.task, data=coins, shots=16, sparsity=1e-2,
                steps=3, baselines="random,movement", text="none", seed=seed, out=skill, runs=runs,
                quiet=True,
            )  # fmt: skip
            found = cutaway.graft.eval(
                skill=[skill], base=shop.lm, tuned=tuned, data=[shop.coins(seed + 10**6)],
                text="none", runs=runs, quiet=True,
            )  # fmt: skip
        return Verdict((*learned.verdict, *found.verdict))

    return World("shuffled labels", "graft", ("difference",), GRAFT, run, real=True)


def continual_coins(shop: Workshop) -> World:
    """Two tasks of which nothing can be learned, so nothing can be forgotten."""

    def run(seed: int) -> Verdict:
        with shop.runs() as runs:
            found = cutaway.graft.continual(
                base=shop.lm, task=[shop.task, shop.other_task], shots=16, sparsity=1e-2,
                data=[shop.coins(seed), shop.coins(seed + 10**6)], mask_steps=2, step_examples=8,
                lr=0.05, seed=seed, runs=runs, **SHORT,
            )  # fmt: skip
        return Verdict(found.verdict)

    return World("shuffled labels, two tasks", "graft", ("difference",), CONTINUAL, run, real=True)


def inject_nothing(shop: Workshop) -> World:
    """Regularisers of strength 0: all trainings are the same."""

    def run(seed: int) -> Verdict:
        with shop.runs() as runs:
            found = cutaway.inject(
                model=shop.lm, data=f"{SUMS},seed={seed}", retain=[shop.corpus], retain_limit=20,
                regulariser="none,ewc=0,l2sp=0", beyond=[],
                fisher_examples=4, seed=seed, runs=runs, **SHORT,
            )  # fmt: skip
        return Verdict(found.verdict)

    return World("identical trainings", "inject", ("difference",), INJECT, run, real=True)


# Of selectivity the control task can be learned where labels are shuffled, so it isn't null.
PROBE = ("headline", "layers*", "majority*", "text*", "twin*")
PROBE_TWIN = ("twin*",)
NEXTWORD = ("*",)
FINETUNE = ("*",)
GRAFT = ("gain", "keeps", "masks")
CONTINUAL = ("continual", "more-weights")
INJECT = ("*",)
WORLDS = (
    probe_coins, probe_random_weights, nextword_coins, finetune_coins, graft_coins,
    continual_coins, inject_nothing,
)  # fmt: skip


def worlds(folder: Path) -> list[World]:
    """Every world of real runs."""
    shop = Workshop(folder)
    return [make(shop) for make in WORLDS]
