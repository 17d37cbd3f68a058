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

from cutaway.core.textset import TextSet
from cutaway.methods.nextword.readout import Output, expectations, projection, word_features
from cutaway.methods.nextword.words import FoundWords, find_words
from cutaway.models.lm import LM
from cutaway.run.ask import Ask
from cutaway.run.door import Door, door_of
from cutaway.run.extract import Features, extract
from cutaway.run.nextword_head import as_template, encoder_of, output_of, place_of
from cutaway.run.nextword_task import Question
from cutaway.run.screen import Screen
from cutaway.run.specs.nextword import NextwordSpec


@dataclass(frozen=True)
class Reading:
    """How the texts of a question go to the model: rows, what is asked of them, where it looks."""

    texts: TextSet
    ask: Ask
    place: str
    prompt: str
    """What the rows call it: the prompt, or the template."""


def reading(spec: NextwordSpec, lm: LM, question: Question, prompt: str, texts: TextSet) -> Reading:
    """The texts as the model is to see them, and the pass that reads f.

    A long text loses its beginning, with the prompt and without, so that both see the same end;
    only where a template's mask stands before the text it loses its end, which keeps the mask.
    """
    place, tail, shown = place_of(lm, spec.position), prompt, prompt
    if place == "mask":
        texts, tail = as_template(texts, question.template, lm.tokenizer.mask_token, question.edits)
        shown = question.template
    ask = Ask(
        layers=(), pools=(place,), heads=("final",), prompt=tail, max_tokens=spec.max_tokens,
        cut="right" if place == "mask" and not tail else "left",
    )  # fmt: skip
    return Reading(texts, ask, place, shown)


def prompts_of(spec: NextwordSpec, lm: LM, question: Question) -> tuple[str, ...]:
    """The prompts to ask with; a template is one of its own."""
    return question.prompts[-1:] if place_of(lm, spec.position) == "mask" else question.prompts


@dataclass(frozen=True)
class Sheet:
    """f of every text, and what is made of it when it is asked for."""

    lm: LM
    read: Reading
    seed: int
    screen: Screen
    output: Output
    engine: str = "local"
    door: Door | None = None

    @cached_property
    def features(self) -> Features:
        """The pass over the texts, or what is kept of it."""
        got = extract(
            self.lm, self.read.texts, self.read.ask, screen=self.screen, engine=self.engine,
            door=self.door,
        )  # fmt: skip
        if got.shortened:
            lost = {"left": "beginning", "right": "end"}[self.read.ask.cut]
            self.screen.say(
                f"{got.shortened:,} texts were longer than allowed and lost their {lost}."
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

    def words(self, words: Sequence[str]) -> FoundWords:
        """The single tokens of some words."""
        return find_words(words, encoder_of(self.lm))

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
        with self.screen.progress(f"{name} of {len(self.f):,} texts", len(self.f)) as advance:
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
            return {name: projection(rows, vocab, seed=self.seed, like=self.output.phi)}
        return {"phi_p": self.output.phi} if name == "phi_p" else {}


def sheet(
    spec: NextwordSpec, lm: LM, question: Question, prompt: str, screen: Screen,
    *, texts: Sequence[str] | None = None,
) -> Sheet:  # fmt: skip
    """The features of a question under a prompt; of other `texts` asked in the same way."""
    rows = question.texts
    if texts is not None:
        pairs = None if rows.pairs is None else ("",) * len(texts)
        rows = replace(
            rows, name="content-free", texts=tuple(texts), labels=None, pairs=pairs, parts=None,
            task="text", meta={},
        )  # fmt: skip
    read = reading(spec, lm, question, prompt, rows)
    return Sheet(lm, read, spec.seed, screen, output_of(lm), spec.engine, door_to(spec, lm))


def door_to(spec: NextwordSpec, lm: LM) -> Door | None:
    """The way to the model; one given as an object has a name by which nobody can open it."""
    return door_of(lm, spec) if lm.name in spec.model else None
