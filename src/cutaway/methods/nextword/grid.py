"""One model on one task: every prompt and feature kind, piece by piece.

A piece is one feature kind under one prompt with all its repeats. Finished pieces are kept at
once, so a killed run goes on where it stopped; a piece that fails is recorded with its reason.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cutaway.console import Console
from cutaway.core.errors import BadSpec, CutawayError
from cutaway.engine import PieceFailed, find_engine, run_pieces
from cutaway.extract.model_handle import ModelHandle
from cutaway.extract.token_rows import build_token_rows
from cutaway.measure.splits import Split
from cutaway.measure.words import WordCounts, count_words
from cutaway.methods.nextword import measure
from cutaway.methods.nextword.features import (
    NextwordFeatures,
    features_for,
    model_handle_for,
    prompt_texts,
    prompts_for,
)
from cutaway.methods.nextword.maths.classify import ClassifierSettings
from cutaway.methods.nextword.maths.words import (
    WordTokens,
    check_distinct_tokens,
    class_token_ids,
    find_word_tokens,
)
from cutaway.methods.nextword.output_head import answer_position, make_encoder
from cutaway.methods.nextword.rows import NextwordCell, failed_row, score_rows
from cutaway.methods.nextword.spec import FEATURES, NextwordSpec
from cutaway.methods.nextword.task import NextwordTask, task_splits
from cutaway.models.lm import LM
from cutaway.recipe.table import Row
from cutaway.store.progress import Progress

DETAIL_KEY = "detail"
WORD_FEATURES = ("subset", "classwords", "posneg", "zeroshot")
# What needs log-partitions or the mean of p, which are made once and kept beside f.
NEEDS_DISTRIBUTION = frozenset({"phi_p", "subset", "classwords", "posneg", "p", "diagnose"})


@dataclass(frozen=True)
class NextwordPiece:
    """A feature kind, a baseline or a diagnosis, under one prompt."""

    what: str
    prompt: str

    @property
    def key(self) -> str:
        """One line of text."""
        return f"{self.what}|{self.prompt}"


@dataclass(frozen=True)
class NextwordGrid:
    """Everything about one model and one task."""

    spec: NextwordSpec
    lm: LM
    question: NextwordTask
    progress: Progress
    console: Console

    def need_possible(self) -> None:
        """Everything that is wrong with the request is said before anything is computed."""
        find_engine(self.spec.engine).check()
        self.lm.need_head()
        _ = answer_position(self.lm, self.spec.position), self.splits
        if answer_position(self.lm, self.spec.position) == "mask" and not self.question.template:
            raise BadSpec(
                f"{self.question.name!r} has no template to put [MASK] in: give one with "
                "--template."
            )
        for name in self.kinds:
            if name in WORD_FEATURES and not self.words[name]:
                raise BadSpec(
                    f"{self.question.name!r} has no words for {name!r}: leave it out of "
                    f"--features, or give {WORD_FLAGS[name]}."
                )
        if "classwords" in self.kinds or "zeroshot" in self.kinds:
            for name in ("classwords", "zeroshot"):
                check_distinct_tokens(self.words[name], self.found[name])
        impossible = [why for name in self.kinds if (why := self._impossible(name))]
        if impossible and len(impossible) == len(self.kinds):
            raise BadSpec(impossible[0])
        for prompt in prompts_for(self.spec, self.lm, self.question):
            first = self.question.texts.take(np.arange(1))
            read = prompt_texts(self.spec, self.lm, self.question, prompt, first)
            build_token_rows(self.lm, read.texts, read.ask)

    def _impossible(self, kind: str) -> str | None:
        """Why no word of this kind can be read off the model; None when one can."""
        if kind not in WORD_FEATURES:
            return None
        found = self.found[kind]
        try:
            if kind == "zeroshot":
                class_token_ids(self.words[kind], found, self.question.texts.classes)
        except BadSpec as error:
            return str(error)
        return None if found.ids else measure.no_token_message(self, found)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The feature kinds to measure; auto is all that have words, p left out."""
        asked = self.spec.features
        if not {"auto", "all"} & set(asked):
            return tuple(dict.fromkeys(asked))
        every = [k for k in FEATURES if k != "p" or "all" in asked or "p" in asked]
        return tuple(k for k in every if k not in WORD_FEATURES or self.words[k])

    @cached_property
    def found(self) -> dict[str, WordTokens]:
        """The tokens of every word list."""
        encode = make_encoder(self.lm)
        return {name: find_word_tokens(words, encode) for name, words in self.words.items()}

    @cached_property
    def words(self) -> dict[str, tuple[str, ...]]:
        """Every word list; zero-shot's is the first that this model knows as single tokens."""
        encode, answers = make_encoder(self.lm), self.question.answers
        known = [words for words in answers if not find_word_tokens(words, encode).missing]
        return {**self.question.words, "zeroshot": next(iter((*known, *answers)), ())}

    @cached_property
    def splits(self) -> list[Split]:
        """The splits that everything is measured on."""
        return task_splits(self.question, self.spec)

    @cached_property
    def plan(self) -> ClassifierSettings:
        """How classifiers are fitted."""
        spec = self.spec
        return ClassifierSettings(
            len(self.question.texts.classes), spec.folds, spec.seed, spec.multinomial,
            spec.standardise,
        )  # fmt: skip

    @cached_property
    def counted(self) -> WordCounts:
        """The words of every text, for the text baselines."""
        return count_words(self.question.texts.texts, self.question.texts.pairs)

    def sheet(self, prompt: str) -> NextwordFeatures:
        """The features under one prompt; the last one asked for is held."""
        if prompt not in self._sheets:
            self._sheets.clear()
            self._sheets[prompt] = features_for(
                self.spec, self.lm, self.question, prompt, self.console
            )
        return self._sheets[prompt]

    @cached_property
    def _sheets(self) -> dict[str, NextwordFeatures]:
        return {}

    def pieces(self) -> Iterator[NextwordPiece]:
        """Baselines first, then each prompt's features and diagnoses."""
        for name in self.spec.baselines:
            yield NextwordPiece(name, "")
        for prompt in prompts_for(self.spec, self.lm, self.question):
            for name in self.kinds:
                yield NextwordPiece(name, prompt)
            if self.spec.diagnostics:
                yield NextwordPiece("diagnose", prompt)

    def carry_out(self) -> list[str]:
        """Do every piece that is not done yet; the keys of all, in order."""
        pieces = {self._key(piece): piece for piece in self.pieces()}
        done = self.progress.done()
        todo = [piece for key, piece in pieces.items() if key not in done]
        title = f"{self.lm.name} on {self.question.name}"
        # What can't be read is the whole run's failure and is said now, not kept as a piece's.
        for prompt in dict.fromkeys(p.prompt for p in todo if p.what not in self.spec.baselines):
            _ = self.sheet(prompt).features
        door = None if find_engine(self.spec.engine).in_process else self._door()
        with self.console.progress(title, len(todo)) as advance:
            for piece, got in self._done(todo, door):
                rows = self._failed(piece, got) if isinstance(got, Exception) else got
                self.progress.put(self._key(piece), rows)
                advance(1, note=piece.what)
        return list(pieces)

    def _door(self) -> ModelHandle | None:
        """The way to the model for workers; None without one."""
        door = model_handle_for(self.spec, self.lm)
        if door is None:
            self.console.print(f"{self.lm.name!r} was given as an object: its pieces run here.")
        return door

    def _done(
        self, todo: list[NextwordPiece], door: ModelHandle | None
    ) -> Iterator[tuple[NextwordPiece, list[Row] | PieceFailed]]:
        """Each piece with its rows, or why there are none; what derives columns goes first."""
        if door is None:
            yield from run_pieces("local", self.measure, todo)
            return
        hand = NextwordWorker(
            self.spec.model_copy(update={"engine": "local"}), door, self.lm, self.question
        )
        engine = self.spec.engine
        for pieces in dependency_rounds(todo):
            yield from run_pieces(
                engine, hand, pieces, key=lambda piece: piece.key, needs=door.resources(engine),
                notify=self.console.print,
            )  # fmt: skip

    def cell(self, piece: NextwordPiece) -> NextwordCell:
        """Where a piece's rows stand in the table."""
        shown = piece.prompt
        if piece.what not in self.spec.baselines:
            shown = self.sheet(piece.prompt).read.prompt
        return NextwordCell(self.lm.name, self.question.name, shown, piece.what)

    def _key(self, piece: NextwordPiece) -> str:
        texts = self.question.texts.digest[:16]
        return "|".join((self.lm.short_id, texts, self.question.name, piece.key))

    def measure(self, piece: NextwordPiece) -> list[Row]:
        """The tidy rows of one piece, and its details."""
        cell, run = self.cell(piece), MEASURES.get(piece.what, measure.measure_features)
        rows: list[Row] = []
        for name, (measured, details) in run(self, piece).items():
            mine = NextwordCell(cell.model, cell.task, cell.prompt, name)
            rows += score_rows(mine, measured)
            rows += [{DETAIL_KEY: json.dumps({**mine.coordinates, **one})} for one in details]
        return rows

    def _failed(self, piece: NextwordPiece, error: Exception) -> list[Row]:
        if isinstance(error, PieceFailed) and error.transient:
            raise error
        kind = "" if isinstance(error, CutawayError) else f"{type(error).__name__}: "
        reason = f"{piece.what}: {kind}{error}"
        self.console.print(f"{piece.what} failed: {kind}{error}")
        return [failed_row(self.cell(piece), reason)]


class NextwordWorker:
    """What a worker needs for a piece: the way to the model; the texts' features are kept."""

    def __init__(
        self, spec: NextwordSpec, door: ModelHandle, lm: LM, question: NextwordTask
    ) -> None:
        """The model itself stays here: workers open it by its door, under the same name."""
        self.spec, self.door, self.name, self.question = spec, door, lm.name, question

    @cached_property
    def work(self) -> NextwordGrid:
        """Everything about the model and the task, opened once per worker."""
        lm = replace(self.door.open(), name=self.name)
        return NextwordGrid(self.spec, lm, self.question, Progress(Path()), Console(quiet=True))

    def __call__(self, piece: NextwordPiece) -> list[Row]:
        """The piece's rows and details."""
        return self.work.measure(piece)


def dependency_rounds(todo: list[NextwordPiece]) -> list[list[NextwordPiece]]:
    """The pieces in two rounds: of those that need a column made of p, one per prompt makes it."""
    leads: dict[str, NextwordPiece] = {}
    for piece in todo:
        if piece.what == "phi_p" or (
            piece.what in NEEDS_DISTRIBUTION and piece.prompt not in leads
        ):
            leads[piece.prompt] = piece
    later = [p for p in todo if p.what in NEEDS_DISTRIBUTION and p is not leads[p.prompt]]
    return [[piece for piece in todo if piece not in later], later]


WORD_FLAGS = {
    "subset": "--subset-words",
    "classwords": "--class-words",
    "posneg": "a task file with posneg",
    "zeroshot": "--class-words, one for each class",
}
MEASURES: dict[str, Callable[[NextwordGrid, NextwordPiece], measure.Measurements]] = {
    "majority": measure.measure_baseline,
    "bow": measure.measure_baseline,
    "tfidf": measure.measure_baseline,
    "p": measure.measure_full_p,
    "zeroshot": measure.measure_zeroshot,
    "diagnose": measure.measure_linearity,
}


def rows_and_details(kept: list[dict[str, Any]]) -> tuple[list[Row], list[dict[str, Any]]]:
    """Tidy rows and details, told apart again."""
    rows = [row for row in kept if DETAIL_KEY not in row]
    return rows, [json.loads(row[DETAIL_KEY]) for row in kept if DETAIL_KEY in row]
