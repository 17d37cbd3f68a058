"""The features of one model, task and prompt: f from the cache, everything else from f.

f comes from the one pass over the texts. What is made of it once (Phi p, log-partitions,
projections) goes onto the same shelf, so it has the same identity: weights, tokenizer, rows,
prompt. A character more in a prompt is another shelf.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from torch import Tensor

from cutaway.console import Console
from cutaway.core.textset import TextSet
from cutaway.extract.activations import StoredActivations, extract
from cutaway.extract.model_handle import ModelHandle, make_model_handle
from cutaway.extract.request import ExtractionRequest
from cutaway.methods.nextword.maths.readout import (
    OutputHead,
    expectations,
    random_projection,
    word_features,
)
from cutaway.methods.nextword.maths.words import WordTokens, find_word_tokens
from cutaway.methods.nextword.output_head import (
    answer_position,
    fill_task_template,
    make_encoder,
    make_output_head,
)
from cutaway.methods.nextword.spec import NextwordSpec
from cutaway.methods.nextword.task import NextwordTask
from cutaway.models.lm import LM


@dataclass(frozen=True)
class PromptedTexts:
    """How the texts of a question go to the model: rows, what is asked of them, where it looks."""

    texts: TextSet
    ask: ExtractionRequest
    place: str
    prompt: str
    """What the rows call it: the prompt, or the template."""


def prompt_texts(
    spec: NextwordSpec, lm: LM, question: NextwordTask, prompt: str, texts: TextSet
) -> PromptedTexts:
    """The texts as the model is to see them, and the pass that reads f.

    A long text loses its beginning, with the prompt and without, so that both see the same end;
    only where a template's mask stands before the text it loses its end, which keeps the mask.
    """
    place, tail, shown = answer_position(lm, spec.position), prompt, prompt
    if place == "mask":
        texts, tail = fill_task_template(
            texts, question.template, lm.tokenizer.mask_token, question.edits
        )
        shown = question.template
    ask = ExtractionRequest(
        layers=(), pools=(place,), heads=("final",), prompt=tail, max_tokens=spec.max_tokens,
        truncation="right" if place == "mask" and not tail else "left",
    )  # fmt: skip
    return PromptedTexts(texts, ask, place, shown)


def prompts_for(spec: NextwordSpec, lm: LM, question: NextwordTask) -> tuple[str, ...]:
    """The prompts to ask with; a template is one of its own."""
    return (
        question.prompts[-1:] if answer_position(lm, spec.position) == "mask" else question.prompts
    )


@dataclass(frozen=True)
class NextwordFeatures:
    """f of every text, and what is made of it when it is asked for."""

    lm: LM
    read: PromptedTexts
    seed: int
    console: Console
    output: OutputHead
    engine: str = "local"
    door: ModelHandle | None = None

    @cached_property
    def features(self) -> StoredActivations:
        """The pass over the texts, or what is kept of it."""
        got = extract(
            self.lm, self.read.texts, self.read.ask, console=self.console, engine=self.engine,
            door=self.door,
        )  # fmt: skip
        if got.num_truncated:
            lost = {"left": "beginning", "right": "end"}[self.read.ask.truncation]
            self.console.print(
                f"{got.num_truncated:,} texts were longer than allowed and lost their {lost}."
            )
        return got

    @cached_property
    def f(self) -> Tensor:
        """The vector that meets the output embedding (n, e)."""
        return self.features.column("final", self.read.place)

    @property
    def phi_p(self) -> Tensor:
        """The conditional mean Phi^T p (n, e)."""
        return self._derived("phi_p")

    @property
    def projection(self) -> Tensor:
        """p through a seeded random projection, as wide as f."""
        return self._derived(f"projection-{self.seed}")

    @cached_property
    def logz(self) -> Tensor:
        """The log-partition of each text (n,)."""
        return self._derived("logz")[:, 0]

    def words(self, words: Sequence[str]) -> WordTokens:
        """The single tokens of some words."""
        return find_word_tokens(words, make_encoder(self.lm))

    def at(self, ids: Sequence[int], kind: str) -> Tensor:
        """The scores of some tokens (n, words)."""
        return word_features(self.output.at(self.f, ids), self.logz, kind)

    def _derived(self, name: str) -> Tensor:
        shelf, column = self.features.shelf, f"{name}/{self.read.place}"
        if column not in shelf.columns():
            self._derive(name)
        return shelf.read(column)

    def _derive(self, name: str) -> None:
        """Make a column of f, with its log-partition, and put both on the shelf."""
        maps = self._maps(name)
        with self.console.progress(f"{name} of {len(self.f):,} texts", len(self.f)) as advance:
            got = expectations(self.f, self.output, maps, done=lambda rows: advance(rows))
        columns = {**got.values, "logz": got.logz[:, None]}
        there = self.features.shelf.columns()
        place, rows = self.read.place, np.arange(len(self.f))
        with self.features.shelf.writer() as writer:
            new = {f"{k}/{place}": v for k, v in columns.items() if f"{k}/{place}" not in there}
            writer.append(rows, new)

    def _maps(self, name: str) -> Mapping[str, Tensor]:
        if name.startswith("projection"):
            rows, vocab = min(self.f.shape[1], self.output.vocab), self.output.vocab
            return {name: random_projection(rows, vocab, seed=self.seed, like=self.output.phi)}
        return {"phi_p": self.output.phi} if name == "phi_p" else {}


def features_for(
    spec: NextwordSpec, lm: LM, question: NextwordTask, prompt: str, console: Console,
    *, texts: Sequence[str] | None = None,
) -> NextwordFeatures:  # fmt: skip
    """The features of a question under a prompt; of other `texts` asked in the same way."""
    rows = question.texts
    if texts is not None:
        pairs = None if rows.pairs is None else ("",) * len(texts)
        rows = replace(
            rows, name="content-free", texts=tuple(texts), labels=None, pairs=pairs, parts=None,
            task="text", meta={},
        )  # fmt: skip
    read = prompt_texts(spec, lm, question, prompt, rows)
    return NextwordFeatures(
        lm, read, spec.seed, console, make_output_head(lm), spec.engine, model_handle_for(spec, lm)
    )


def model_handle_for(spec: NextwordSpec, lm: LM) -> ModelHandle | None:
    """The way to the model; one given as an object has a name by which nobody can open it."""
    return make_model_handle(lm, spec) if lm.name in spec.model else None
