"""One model on one task: every prompt and feature kind, piece by piece.

A piece is one feature kind under one prompt with all its repeats. Finished pieces are stored
immediately, so an interrupted run resumes; a piece that fails is recorded with its reason.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cutaway.console import Console
from cutaway.core.errors import BadSpec, CutawayError
from cutaway.core.names import short_name
from cutaway.engine import PieceFailed, find_engine, run_pieces
from cutaway.extract.model_handle import ModelHandle
from cutaway.extract.request import build_token_rows
from cutaway.measure.baselines import WordCounts, count_words
from cutaway.measure.jackknife import assign_blocks
from cutaway.measure.splits import Split
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
from cutaway.methods.nextword.measure import SplitAnswers
from cutaway.methods.nextword.output_head import answer_position, make_encoder
from cutaway.methods.nextword.piece import NextwordPiece, dependency_rounds
from cutaway.methods.nextword.rows import (
    NextwordCell,
    failed_row,
    resampling_details,
    score_rows,
)
from cutaway.methods.nextword.spec import FEATURES, NextwordSpec
from cutaway.methods.nextword.task import NextwordTask, WordList, task_splits
from cutaway.models.lm import LM
from cutaway.recipe.result import Row
from cutaway.recipe.worker_pieces import local_spec
from cutaway.store.progress import Progress
from cutaway.store.samples import SamplePieces, prediction_frame, split_frame, text_digests

WORD_FEATURES = ("subset", "classwords", "posneg", "zeroshot")
PieceResult = tuple[list[Row], measure.Details, pl.DataFrame | None]
"""The tidy rows of a piece, what its figures need, and its predictions if they are kept."""


@dataclass(frozen=True)
class NextwordGrid:
    """All pieces of one model and one task."""

    spec: NextwordSpec
    lm: LM
    task: NextwordTask
    console: Console

    def check(self) -> None:
        """BadSpec or BadData, before anything is computed, if the request can't be measured."""
        find_engine(self.spec.engine).check()
        self.lm.need_head()
        _ = self.splits
        if answer_position(self.lm, self.spec.position) == "mask" and not self.task.template:
            raise BadSpec(
                f"{self.task.name!r} has no template to put [MASK] in: give one with --template."
            )
        for kind in self.kinds:
            if kind in WORD_FEATURES and not self.words[kind]:
                raise BadSpec(
                    f"{self.task.name!r} has no words for {kind!r}: leave it out of --features, "
                    f"or give {WORD_FLAGS[kind]}."
                )
        if "classwords" in self.kinds or "zeroshot" in self.kinds:
            for kind in ("classwords", "zeroshot"):
                check_distinct_tokens(self.words[kind], self.word_tokens[kind])
        problems = [problem for kind in self.kinds if (problem := self._word_problem(kind))]
        if problems and len(problems) == len(self.kinds):
            raise BadSpec(problems[0])
        for prompt in prompts_for(self.spec, self.lm, self.task):
            first = self.task.texts.take(np.arange(1))
            prompted = prompt_texts(self.spec, self.lm, self.task, prompt, first)
            build_token_rows(self.lm, prompted.texts, prompted.request)

    def _word_problem(self, kind: str) -> str | None:
        """Why the model can't score the words of a feature kind; None if it can."""
        if kind not in WORD_FEATURES:
            return None
        tokens = self.word_tokens[kind]
        try:
            if kind == "zeroshot":
                class_token_ids(self.words[kind], tokens, self.task.texts.classes)
        except BadSpec as error:
            return str(error)
        return None if tokens.ids else self.no_token_message(kind)

    def no_token_message(self, kind: str) -> str:
        """The error for a word list without a single token of the model."""
        words = ", ".join(map(repr, self.word_tokens[kind].missing))
        return f"none of the words {words} is a single token of {self.lm.name!r}."

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The feature kinds to measure; `auto` is all that have words, without p."""
        chosen = self.spec.features
        if not {"auto", "all"} & set(chosen):
            return tuple(dict.fromkeys(chosen))
        every = [k for k in FEATURES if k != "p" or "all" in chosen or "p" in chosen]
        return tuple(k for k in every if k not in WORD_FEATURES or self.words[k])

    @cached_property
    def words(self) -> dict[str, WordList]:
        """Every word list; zero-shot uses the first one whose words are all single tokens."""
        encode, answers = make_encoder(self.lm), self.task.answers
        complete = [words for words in answers if not find_word_tokens(words, encode).missing]
        return {**self.task.words, "zeroshot": next(iter((*complete, *answers)), ())}

    @cached_property
    def word_tokens(self) -> dict[str, WordTokens]:
        """The tokens of every word list."""
        encode = make_encoder(self.lm)
        return {kind: find_word_tokens(words, encode) for kind, words in self.words.items()}

    def word_report(self) -> dict[str, Any]:
        """The tokens of every word list in use, and the words that have none, JSON-ready."""
        return {
            kind: {
                "tokens": {word: list(ids) for word, ids in tokens.tokens.items()},
                "missing": list(tokens.missing),
            }
            for kind, tokens in self.word_tokens.items()
            if kind in self.kinds
        }

    @cached_property
    def splits(self) -> list[Split]:
        """The splits that all features and baselines share."""
        return task_splits(self.task, self.spec)

    @cached_property
    def blocks(self) -> NDArray[np.int64]:
        """The block of test rows that each row belongs to, the same for all features."""
        return assign_blocks([split.test for split in self.splits], len(self.task.labels))

    @cached_property
    def settings(self) -> ClassifierSettings:
        """How classifiers are fitted."""
        spec, classes = self.spec, len(self.task.texts.classes)
        return ClassifierSettings(
            classes, spec.folds, spec.seed, spec.multinomial, spec.standardise
        )

    @cached_property
    def word_counts(self) -> WordCounts:
        """The words of every text, for the text baselines."""
        return count_words(self.task.texts.texts, self.task.texts.pairs)

    def features(self, prompt: str) -> NextwordFeatures:
        """The features under one prompt; only those of the last prompt stay in memory."""
        if prompt not in self._features:
            self._features.clear()
            self._features[prompt] = features_for(
                self.spec, self.lm, self.task, prompt, self.console
            )
        return self._features[prompt]

    @cached_property
    def _features(self) -> dict[str, NextwordFeatures]:
        return {}

    def pieces(self) -> Iterator[NextwordPiece]:
        """Baselines first, then each prompt's features and diagnoses."""
        for kind in self.spec.baselines:
            yield NextwordPiece(kind, "")
        for prompt in prompts_for(self.spec, self.lm, self.task):
            for kind in self.kinds:
                yield NextwordPiece(kind, prompt)
            if self.spec.diagnostics:
                yield NextwordPiece("diagnose", prompt)

    def measure_all(self, progress: Progress, samples: SamplePieces | None = None) -> list[str]:
        """Measure and store every piece that isn't done yet; returns the keys of all, in order."""
        pieces = {self._key(piece): piece for piece in self.pieces()}
        done = progress.done()
        todo = [piece for key, piece in pieces.items() if key not in done]
        # Texts that can't be read fail the run, not a single piece: so read them first.
        for prompt in dict.fromkeys(p.prompt for p in todo if p.kind not in self.spec.baselines):
            _ = self.features(prompt).activations
        with self.console.progress(
            f"{short_name(self.lm.name)} on {self.task.name}", len(todo)
        ) as advance:
            for piece, result in self._results(todo):
                failed = isinstance(result, Exception)
                rows, details, predictions = (
                    (self._failed_rows(piece, result), [], None) if failed else result
                )
                if samples is not None and predictions is not None:
                    samples.put(self._key(piece), predictions)
                progress.put(self._key(piece), rows, details)
                advance(1, note=piece.kind)
        return list(pieces)

    def _results(self, todo: list[NextwordPiece]) -> Iterator[tuple[NextwordPiece, Any]]:
        """Each piece with its result or its failure, from this process or from workers."""
        engine, handle = self.spec.engine, None
        if not find_engine(engine).in_process:
            handle = model_handle_for(self.spec, self.lm)
            if handle is None:
                self.console.print(f"{self.lm.name!r} was given as an object: its pieces run here.")
        if handle is None:
            yield from run_pieces("local", self.measure, todo)
            return
        worker = NextwordWorker(local_spec(self.spec), handle, self.lm.name, self.task)
        for pieces in dependency_rounds(todo):
            yield from run_pieces(
                engine, worker, pieces, key=lambda piece: piece.key, needs=handle.resources(engine),
                notify=self.console.print,
            )  # fmt: skip

    def measure(self, piece: NextwordPiece) -> PieceResult:
        """The rows, figure details and predictions of one piece."""
        function = MEASURES.get(piece.kind, measure.measure_features)
        rows: list[Row] = []
        details: measure.Details = []
        frames: list[pl.DataFrame] = []
        for kind, found in function(self, piece).items():
            cell = self._cell(piece, kind)
            rows += score_rows(cell, found.scores)
            details += resampling_details(cell, found.scores, self.task.metric)
            details += [{**cell.coordinates, **detail} for detail in found.details]
            frames += [self._predictions(cell, one) for one in found.answers]
        return rows, details, pl.concat(frames) if frames and self.spec.samples else None

    def _predictions(self, cell: NextwordCell, given: SplitAnswers) -> pl.DataFrame:
        texts, split = self.task.texts, given.split
        sizes = {"repeat": split.repeat, "n_train": len(split.train), "n_test": len(split.test)}
        return prediction_frame(
            {**cell.coordinates, **sizes},
            part="test",
            rows=split.test.tolist(),
            digests=self.digests,
            truth=[texts.classes[i] for i in self.task.labels[split.test]],
            answer=[texts.classes[i] for i in given.decisions],
            score=given.scores.tolist(),
        )

    @cached_property
    def digests(self) -> list[str]:
        """The digest of each text, by which samples and splits name it."""
        return text_digests(self.task.texts)

    def splits_table(self) -> pl.DataFrame:
        """The rows of every split; those that choose a baseline's regularisation are in train."""
        return pl.concat(
            split_frame(self.task.name, part, rows.tolist(), self.digests, repeat=one.repeat)
            for one in self.splits
            for part, rows in (("train", one.train), ("test", one.test))
        )

    def count_predictions(self) -> int:
        """Predictions of all pieces; zero-shot has those with and without calibration."""
        kinds = [piece.kind for piece in self.pieces() if piece.kind != "diagnose"]
        return (len(kinds) + kinds.count("zeroshot")) * sum(len(s.test) for s in self.splits)

    def _cell(self, piece: NextwordPiece, kind: str) -> NextwordCell:
        prompt = piece.prompt
        if piece.kind not in self.spec.baselines:
            prompt = self.features(prompt).prompted.prompt
        return NextwordCell(self.lm.name, self.task.name, prompt, kind)

    def _key(self, piece: NextwordPiece) -> str:
        return "|".join((piece.key, self.lm.short_id, self.task.texts.digest[:16], self.task.name))

    def _failed_rows(self, piece: NextwordPiece, error: Any) -> list[Row]:
        if isinstance(error, PieceFailed) and error.transient:
            raise error
        name = "" if isinstance(error, CutawayError) else f"{type(error).__name__}: "
        self.console.print(f"{piece.kind} failed: {name}{error}")
        reason = f"{piece.kind}: {name}{error}"
        return [failed_row(self._cell(piece, piece.kind), reason, self.task.metric)]


@dataclass(frozen=True)
class NextwordWorker:
    """Measures pieces in another process, which opens the model by name."""

    spec: NextwordSpec
    handle: ModelHandle
    name: str
    task: NextwordTask

    @cached_property
    def grid(self) -> NextwordGrid:
        """The grid with its model, opened once per worker."""
        lm = replace(self.handle.open(), name=self.name)
        return NextwordGrid(self.spec, lm, self.task, Console(quiet=True))

    def __call__(self, piece: NextwordPiece) -> PieceResult:
        """The rows, figure details and predictions of one piece."""
        return self.grid.measure(piece)


WORD_FLAGS = {
    "subset": "--subset-words",
    "classwords": "--class-words",
    "posneg": "a task file with posneg",
    "zeroshot": "--class-words, one for each class",
}
MEASURES: dict[str, Callable[[NextwordGrid, NextwordPiece], measure.Measurements]] = {
    **dict.fromkeys(("majority", "bow", "tfidf"), measure.measure_baseline),
    "p": measure.measure_full_p,
    "zeroshot": measure.measure_zeroshot,
    "diagnose": measure.measure_linearity,
}
