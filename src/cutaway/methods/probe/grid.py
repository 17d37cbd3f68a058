"""One model on one set: its features, its pieces, and what each piece gives.

A piece is one cell of the grid with all its repeats. Finished pieces are kept at once, so a
killed run goes on where it stopped; a piece that fails is recorded with its reason.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cutaway.console import Console
from cutaway.core.errors import CutawayError
from cutaway.core.textset import TextSet
from cutaway.engine import PieceFailed, find_engine, run_pieces
from cutaway.engine.local import run_inline
from cutaway.engine.pieces import PieceOptions
from cutaway.extract.activations import StoredActivations, extract
from cutaway.extract.model_handle import ModelHandle, make_model_handle, random_twin_handle
from cutaway.extract.request import ExtractionRequest
from cutaway.measure.shared_test_variance import assign_blocks
from cutaway.measure.splits import Split, SplitPlan, split
from cutaway.measure.words import WordCounts, count_words
from cutaway.methods.probe.best_cell import best_cell_details
from cutaway.methods.probe.cells import ProbePiece, measure_piece
from cutaway.methods.probe.maths.cell import RaggedTokens, RowBlocks, classifier
from cutaway.methods.probe.maths.fitted import FitSettings
from cutaway.methods.probe.maths.layer_mix import LayerMix, mix_layers, parse_layers
from cutaway.methods.probe.piece_store import DETAIL, resampling_records
from cutaway.methods.probe.rows import MAIN_METRIC, ProbeCell, cell_rows, failed_row
from cutaway.methods.probe.spec import ProbeSpec
from cutaway.models.lm import LM
from cutaway.models.random_twin import random_twin
from cutaway.pool import pooler
from cutaway.recipe.objects import Objects
from cutaway.store.progress import Progress

LEARNED_POOLER = "learned"
"""The pooler that is learnt: one query attends to all token vectors."""
TEXT_BASELINES = ("majority", "bow", "tfidf")
MAX_MATRIX_BYTES = 256 << 20
"""Bytes of one feature matrix that are held in memory; larger ones are read in blocks."""
BLOCK_ROWS = 8192


@dataclass(frozen=True)
class ProbeGrid:
    """Everything about one model and one set."""

    spec: ProbeSpec
    lm: LM
    texts: TextSet
    objects: Objects
    progress: Progress
    console: Console

    def carry_out(self) -> list[str]:
        """Do every piece that is not done yet; the keys of all, in order."""
        self.need_possible()
        jobs = {self._key(job): job for job in self._jobs()}
        done = self.progress.done()
        todo = [job for key, job in jobs.items() if key not in done]
        if todo:
            self._do(todo)
        return [*jobs, *self._best_piece(jobs, done)]

    def _best_piece(self, jobs: Mapping[str, ProbePiece], done: set[str]) -> list[str]:
        """The piece with the details of the best cell; none when every cell failed."""
        probes = {key: job for key, job in jobs.items() if job.what == "probe"}
        metric, means = MAIN_METRIC[self.texts.task], {}
        for key in probes:
            rows = [r for r in self.progress.rows([key]) if r.get("metric") == metric]
            most = max((r["n_train"] for r in rows), default=0)
            # Of a learning curve only its largest size speaks, as in the summary.
            full = [r for r in rows if self.spec.protocol != "curve" or r["n_train"] == most]
            values = [r["value"] for r in full if r["value"] is not None]
            if values:
                means[key] = float(np.mean(values))
        if not means:
            return []
        # Of equals the first by name, as in the summary.
        best = min(means, key=lambda key: (-means[key], probes[key].cell.key))
        beside = {self._key(job): job for job in self._beside(probes[best], set(jobs))}
        if todo := [job for key, job in beside.items() if key not in done]:
            self._do(todo)
        name = f"{best}|details"
        if name not in done:
            self.progress.put(name, self._details(probes[best]))
        return [*beside, name]

    def _beside(self, best: ProbePiece, known: set[str]) -> Iterator[ProbePiece]:
        """Twin and control task of the best cell, where its classifier has none yet."""
        for kind in ("twin", "control"):
            if kind in self.spec.baselines and best.cell.pool != LEARNED_POOLER:
                job = ProbePiece(kind, replace(best.cell, kind=kind), best.layers)
                if self._key(job) not in known:
                    yield job

    def _details(self, best: ProbePiece) -> list[dict[str, Any]]:
        """What figures need of the best cell; pictures that can't be made cost no numbers."""
        for _, got in run_pieces("local", lambda job: best_cell_details(job, self), [best]):
            if isinstance(got, Exception):
                self.console.print(f"No details for {best.cell.key}: {got}")
                return []
            return [{DETAIL: detail.model_dump_json()} for detail in got]
        return []

    def need_possible(self) -> None:
        """Everything that is wrong with the request is said before anything is computed."""
        for name in self.spec.classifier:
            row = classifier(self.objects.get(name, name))
            row.check(FitSettings(self.texts.task, max(2, len(self.texts.classes))))
        for name in self.spec.pool:
            if name != LEARNED_POOLER:
                pooler(name)
        find_engine(self.spec.engine).check()
        _ = self.mixes, self.splits

    @cached_property
    def mixes(self) -> list[LayerMix]:
        """The layer choices of the spec, for this model's number of layers."""
        return layer_mixes(self.spec, self.lm)

    @cached_property
    def ask(self) -> ExtractionRequest:
        """What the one pass must give."""
        return extraction_request_for(self.spec, self.mixes)

    @cached_property
    def splits(self) -> tuple[Split, ...]:
        """The splits every cell and every baseline is measured on."""
        spec = self.spec
        plan = SplitPlan(
            protocol=spec.protocol, seed=spec.seed, repeats=spec.repeats, folds=spec.folds,
            shots=spec.shots, sizes=self._sizes(),
        )  # fmt: skip
        return split(
            np.asarray(self.texts.labels), plan, task=self.texts.task, parts=self.texts.parts,
            classes=self.texts.classes,
        )  # fmt: skip

    @cached_property
    def blocks(self) -> NDArray[np.int64]:
        """The block of each row, where the splits share their test rows."""
        return assign_blocks([split.test for split in self.splits], len(self.texts))

    @cached_property
    def features(self) -> StoredActivations:
        """The model's states; computed when the first cell needs them."""
        got = extract(
            self.lm, self.texts, self.ask, console=self.console, engine=self.spec.engine,
            handle=self._door,
        )  # fmt: skip
        if got.num_truncated:
            self.console.print(
                f"{got.num_truncated:,} texts were longer than allowed and were cut."
            )
        return got

    @cached_property
    def twin_features(self) -> StoredActivations:
        """The states of the random-weights twin."""
        seed, engine = self.spec.seed, self.spec.engine
        other = random_twin(self.lm, seed=seed)
        door = random_twin_handle(self._door, other, seed)
        return extract(
            other, self.texts, self.ask, console=self.console, engine=engine, handle=door
        )  # fmt: skip

    @property
    def _door(self) -> ModelHandle | None:
        # A model given as an object, or renamed beside its namesake, can't be opened by its name.
        return make_model_handle(self.lm, self.spec) if self.lm.name in self.spec.model else None

    def _sizes(self) -> tuple[int, ...]:
        """Training sizes as row counts; shares are shares of the training part."""
        if self.spec.protocol != "curve":
            return ()
        plan = SplitPlan(protocol="repeats", seed=self.spec.seed, repeats=self.spec.repeats)
        labels = np.asarray(self.texts.labels)
        made = split(labels, plan, task=self.texts.task, classes=self.texts.classes)
        whole = min(len(one.train) for one in made)
        sizes = {
            s if isinstance(s, int) else max(2, round(s * whole)) for s in self.spec.train_sizes
        }
        return tuple(sorted(sizes))

    def _jobs(self) -> Iterator[ProbePiece]:
        """Every piece: text baselines, then cells and what stands beside them."""
        wanted = self.spec.baselines
        for name in TEXT_BASELINES:
            if name in wanted:
                yield ProbePiece("baseline", self._cell("-", "text", name, "baseline"))
        for pool in self.spec.pool:
            for layers in self.mixes:
                yield from self._cell_jobs(pool, layers, wanted)

    def _cell_jobs(
        self, pool: str, layers: LayerMix, wanted: Iterable[str]
    ) -> Iterator[ProbePiece]:
        names = ("attention",) if pool == LEARNED_POOLER else self.spec.classifier
        for name in names:
            yield ProbePiece("probe", self._cell(layers.name, pool, name), layers)
        first = self._cell(layers.name, pool, names[0])
        if pool == LEARNED_POOLER:
            return
        for kind in ("twin", "control"):
            if kind in wanted:
                yield ProbePiece(kind, replace(first, kind=kind), layers)
        if "mdl" in wanted and self.texts.task in ("binary", "multiclass"):
            yield ProbePiece("mdl", self._cell(layers.name, pool, "logistic"), layers)

    def _cell(self, layers: str, pool: str, classifier: str, kind: str = "probe") -> ProbeCell:
        return ProbeCell(self.lm.name, self.texts.name, layers, pool, classifier, kind)

    def _key(self, job: ProbePiece) -> str:
        return "|".join((self.lm.short_id, self.texts.digest[:16], job.what, job.cell.key))

    def _do(self, todo: list[ProbePiece]) -> None:
        title, here = f"probing {self.lm.name} on {self.texts.name}", self._here
        # What can't be read is the whole run's failure and is said now, not kept as a cell's.
        self._read(todo)
        hands = self if here else self._sent(todo)
        # Here a piece is a single cell, so that a killed run loses no more than one.
        pieces = [(job,) for job in todo] if here else group_by_matrix(todo)
        with self.console.progress(title, len(todo)) as advance:
            for jobs, got in run_pieces(
                self.spec.engine, hands.measure, pieces, key=piece_name, notify=self.console.print
            ):
                each = [got] * len(jobs) if isinstance(got, PieceFailed) else got
                for job, one in zip(jobs, each, strict=True):
                    rows = self._failed(job, one) if isinstance(one, Exception) else one
                    self.progress.put(self._key(job), rows)
                    advance(
                        1, note=f"layer {job.cell.layers} {job.cell.pool} {job.cell.classifier}"
                    )

    @property
    def _here(self) -> bool:
        return find_engine(self.spec.engine).in_process

    def _sent(self, todo: list[ProbePiece]) -> "ProbeGrid":
        """This work as it travels: cells need features, which are on the disk, and no weights."""
        kept = {name: self.objects[name] for name in self.spec.classifier if name in self.objects}
        sent = replace(
            self, lm=replace(self.lm, module=None, tokenizer=None), objects=kept,
            console=Console(quiet=True),
        )  # fmt: skip
        vars(sent).update(self._read(todo))
        return sent

    def _read(self, todo: list[ProbePiece]) -> dict[str, Any]:
        """The features that these jobs need, in the store."""
        found: dict[str, Any] = {}
        if any(job.layers is not None for job in todo):
            found["features"] = self.features
        if any(job.what == "twin" for job in todo):
            found["twin_features"] = self.twin_features
        return found

    def measure(self, jobs: tuple[ProbePiece, ...]) -> list[list[dict[str, Any]] | PieceFailed]:
        """The rows of each job, or why there are none; one that fails spoils no other."""
        terms = PieceOptions(key=lambda job: job.cell.key, notify=self.console.print)
        return [got for _, got in run_inline(self._measure, jobs, terms)]

    def _measure(self, job: ProbePiece) -> list[dict[str, Any]]:
        """The tidy rows of one piece, and its details."""
        measured, details = measure_piece(job, self)
        rows = cell_rows(job.cell, measured)
        rows += resampling_records(job.cell, measured, MAIN_METRIC[self.texts.task])
        return [*rows, *({DETAIL: d.model_dump_json()} for d in details)]

    def _failed(self, job: ProbePiece, error: Exception) -> list[dict[str, Any]]:
        if isinstance(error, PieceFailed) and error.transient:
            raise error
        kind = "" if isinstance(error, CutawayError) else f"{type(error).__name__}: "
        reason = f"{kind}{error}"
        self.console.print(f"Cell {job.cell.key} failed: {reason}")
        return [failed_row(job.cell, reason, MAIN_METRIC[self.texts.task])]

    @cached_property
    def words(self) -> WordCounts:
        """The words of every text, counted once for all text baselines."""
        return count_words(self.texts.texts, self.texts.pairs)

    def states(
        self, layers: LayerMix, pool: str, *, of_twin: bool = False
    ) -> Tensor | RowBlocks | RaggedTokens:
        """The features of one layer mix and pooler; read block by block when they are large."""
        source = self.twin_features if of_twin else self.features
        if pool == LEARNED_POOLER:
            return self._tokens(layers, source)
        if len(layers.layers) == 1 and len(self.texts) * self.lm.width * 4 > MAX_MATRIX_BYTES:
            return self._streamed(f"{layers.layers[0]}/{pool}", source)
        return mix_layers({layer: source.column(layer, pool) for layer in layers.layers}, layers)

    def _tokens(self, layers: LayerMix, source: StoredActivations) -> RaggedTokens:
        parts = {layer: source.tokens(layer) for layer in layers.layers}
        offsets = next(iter(parts.values()))[1]
        return RaggedTokens(
            mix_layers({layer: values for layer, (values, _) in parts.items()}, layers), offsets
        )

    def _streamed(self, column: str, source: StoredActivations) -> RowBlocks:
        n = len(self.texts)

        def blocks() -> Iterator[Tensor]:
            for start in range(0, n, BLOCK_ROWS):
                yield source.table.read(column, np.arange(start, min(start + BLOCK_ROWS, n)))

        return RowBlocks(blocks, n, self.lm.width)


def group_by_matrix(jobs: Iterable[ProbePiece]) -> list[tuple[ProbePiece, ...]]:
    """Jobs in pieces: what is measured on one matrix goes together, a text baseline alone."""
    pieces: dict[Any, list[ProbePiece]] = {}
    for job in jobs:
        alone = job.cell.classifier if job.layers is None else ""
        matrix = (job.what == "twin", job.cell.layers, job.cell.pool, alone)
        pieces.setdefault(matrix, []).append(job)
    return [tuple(piece) for piece in pieces.values()]


def piece_name(piece: tuple[ProbePiece, ...]) -> str:
    """A piece by its first cell."""
    more = f" and {len(piece) - 1} more" if len(piece) > 1 else ""
    return f"{piece[0].cell.key}{more}"


def layer_mixes(spec: ProbeSpec, lm: LM) -> list[LayerMix]:
    """The layer choices of the spec, each once."""
    found = [m for text in spec.layers for m in parse_layers(text, lm.layers)]
    return list({m.name: m for m in found}.values())


def extraction_request_for(spec: ProbeSpec, mixes: Iterable[LayerMix]) -> ExtractionRequest:
    """What one pass must give for these layer choices and the spec's poolers."""
    layers = sorted({layer for m in mixes for layer in m.layers})
    pools = tuple(dict.fromkeys("all" if p == LEARNED_POOLER else p for p in spec.pool))
    return ExtractionRequest(
        layers=tuple(layers),
        pools=pools,
        max_tokens=spec.max_tokens,
        truncation=spec.cut,
        stored_dtype=spec.keep,
    )
