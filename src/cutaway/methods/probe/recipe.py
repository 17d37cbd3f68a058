"""`cutaway probe`: what information do the hidden states encode?

One forward pass per model and data set, then a grid of layers, poolers and classifiers. A piece of
the grid is one cell with all its repeats. Finished pieces are saved at once, so a killed run
continues where it stopped; a piece that fails is recorded with its reason.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from cutaway.core.names import short_name
from cutaway.core.textset import TextSet
from cutaway.data.labels import check_learnable
from cutaway.data.load import load_text_set
from cutaway.engine import PieceFailed, find_engine, run_pieces
from cutaway.extract.estimate import estimate_pass
from cutaway.methods.probe.details import DETAILS_FILE, dump_details
from cutaway.methods.probe.evidence import Evidence
from cutaway.methods.probe.inputs import ProbeInputs, probe_metric
from cutaway.methods.probe.maths.layer_mix import LayerMix
from cutaway.methods.probe.pieces import ProbePiece, measure_piece
from cutaway.methods.probe.rows import (
    PieceResult,
    ProbeCell,
    failed_row,
    load_results,
    make_evidence,
    probe_table,
    summarise,
)
from cutaway.methods.probe.spec import LEARNED_POOLER, TEXT_BASELINES, ProbeSpec
from cutaway.models.lm import model_facts
from cutaway.pool import needs_attention
from cutaway.recipe.cost import Estimate, SampleSize
from cutaway.recipe.life_cycle import Context, Outcome, Run
from cutaway.recipe.objects import Objects, with_unique_names
from cutaway.recipe.open_for_spec import SpecModels
from cutaway.recipe.result import data_facts, one_or_many
from cutaway.store.progress import Progress
from cutaway.store.samples import SamplePieces


@dataclass(frozen=True)
class ProbeRequest:
    """The models and data sets of a grid."""

    spec: ProbeSpec
    models: SpecModels
    sets: list[TextSet]
    facts: list[dict[str, Any]]
    """Facts about each model."""
    identity: dict[str, Any]
    predictions: int
    """Predictions on test rows that `--samples` keeps."""


def resolve(spec: ProbeSpec, context: Context) -> ProbeRequest:
    """Load the data sets and open the models; refuse a grid that can't be measured."""
    texts = (load_texts(spec, name, context.objects) for name in spec.data)
    sets = list(with_unique_names(texts, lambda one: one.digest, option="--data"))
    for note in shared_words_notes(spec, sets):
        context.console.print(note)
    kernel = spec.attention
    if kernel == "auto":
        kernel = "eager" if needs_attention(spec.pool) else "sdpa"
    options = {"revision": spec.revision, "attention": kernel}
    models = SpecModels(spec, context.objects, options)
    facts, identities, predictions = [], [], 0
    for lm in models:
        for one in sets:
            inputs = ProbeInputs(spec, lm, one, context.objects, context.console)
            inputs.check()
            predictions += count_predictions(inputs)
        facts.append(model_facts(lm))
        identities.append(lm.identity)
    identity = {"models": identities, "data": [one.digest for one in sets]}
    return ProbeRequest(spec, models, sets, facts, identity, predictions)


def shared_words_notes(spec: ProbeSpec, sets: Iterable[TextSet]) -> list[str]:
    """A sentence per generated set whose split by words the protocol doesn't keep."""
    shuffled = spec.protocol not in ("fixed", "kshot")
    return [
        f"{texts.name} comes in parts that share no content word, but the protocol "
        f"{spec.protocol} draws its rows from all parts, so that test words occur in training. "
        "Keep the parts with --protocol fixed."
        for texts in sets
        if shuffled and "lexicon" in texts.meta
    ]


def count_predictions(inputs: ProbeInputs) -> int:
    """Predictions of all cells and baselines, and of a twin and a control of the chosen cells."""
    pieces = list(ProbeGrid(inputs, Progress(Path())).pieces())
    measured = sum(piece.kind != "mdl" for piece in pieces)
    return (measured + 2) * sum(len(split.test) for split in inputs.splits)


def sample_size(request: ProbeRequest) -> SampleSize:
    """One row per cell, repeat and test row."""
    return SampleSize(request.predictions)


def measure(request: ProbeRequest, run: Run) -> Outcome:
    """Every cell of the grid on every model and data set."""
    spec, keys = request.spec, []
    splits: dict[str, pl.DataFrame] = {}
    for lm in request.models:
        for texts in request.sets:
            inputs = ProbeInputs(spec, lm, texts, run.objects, run.console)
            keys += ProbeGrid(inputs, run.progress, run.samples).measure()
            splits.setdefault(texts.name, inputs.splits_table())
    results = load_results(run.progress, keys)
    table = probe_table(results.rows)
    metrics = {texts.name: probe_metric(spec, texts) for texts in request.sets}
    summary, baselines = summarise(
        table, request.sets, results.resampling, protocol=spec.protocol, metrics=metrics
    )
    summary["verdict"] += shared_words_notes(spec, request.sets)
    return Outcome(
        table,
        summary,
        baselines,
        model=one_or_many(request.facts),
        data=one_or_many([data_facts(texts) for texts in request.sets]),
        files={DETAILS_FILE: dump_details(results.details)},
        splits=pl.concat(splits.values()),
    )


def estimate(request: ProbeRequest) -> list[Estimate]:
    """The cost of the forward passes, one estimate per model and data set."""
    context, copies = Context(), request.spec.weight_copies.count
    estimates = []
    for lm in request.models:
        twin_mb = copies * sum(p.nbytes for p in lm.module.parameters()) / 2**20
        for texts in request.sets:
            inputs = ProbeInputs(request.spec, lm, texts, {}, context.console)
            one = estimate_pass(lm, texts, inputs.request)
            estimates.append(replace(one, memory_mb=round(one.memory_mb + twin_mb, 1)))
    return estimates


def load_texts(spec: ProbeSpec, name: str, objects: Objects) -> TextSet:
    """A labelled data set of the spec."""
    columns = {k: getattr(spec, k) for k in ("text_column", "pair_column", "label_column")}
    texts = load_text_set(
        objects.get(name, name), **columns, as_task=spec.as_, drop_empty=spec.drop_empty,
        limit=spec.limit, least=rows_per_class(spec), seed=spec.seed, offline=spec.offline,
        chat=spec.chat,
    )  # fmt: skip
    return check_learnable(texts)


def rows_per_class(spec: ProbeSpec) -> int:
    """The rows of a class that the protocol can't do without."""
    return 2 * spec.shots + 1 if spec.protocol == "kshot" else 3


@dataclass(frozen=True)
class ProbeGrid:
    """All cells of one model on one data set, with their baselines."""

    inputs: ProbeInputs
    progress: Progress
    samples: SamplePieces | None = None

    def measure(self) -> list[str]:
        """Measure every piece that is not done yet; the keys of all pieces, in order."""
        pieces = {self._key(piece): piece for piece in self.pieces()}
        self._measure_missing(pieces)
        more = {self._key(piece): piece for piece in self._pieces_of_choice(pieces)}
        self._measure_missing(more)
        return [*pieces, *more]

    def pieces(self) -> Iterator[ProbePiece]:
        """Every piece: text baselines, then the cells with their twins, controls and MDL."""
        spec = self.inputs.spec
        for name in TEXT_BASELINES:
            if name in spec.baselines:
                yield ProbePiece("baseline", self._cell("-", "text", name, "baseline"))
        for pool in spec.pool:
            for layers in self.inputs.mixes:
                yield from self._pieces_of_features(pool, layers)

    def _pieces_of_features(self, pool: str, layers: LayerMix) -> Iterator[ProbePiece]:
        from cutaway.methods.probe.maths.mdl import MIN_ROWS

        spec = self.inputs.spec
        names = ("attention",) if pool == LEARNED_POOLER else tuple(self.inputs.classifiers)
        for name in names:
            yield ProbePiece("probe", self._cell(layers.name, pool, name), layers)
        if pool == LEARNED_POOLER:
            return
        for kind in ("twin", "control"):
            if kind in spec.baselines:
                yield ProbePiece(kind, self._cell(layers.name, pool, names[0], kind), layers)
        classes = self.inputs.texts.task in ("binary", "multiclass")
        if "mdl" in spec.baselines and classes and len(self.inputs.coded_rows) >= 2 * MIN_ROWS:
            yield ProbePiece("mdl", self._cell(layers.name, pool, "logistic"), layers)

    def _pieces_of_choice(self, pieces: Mapping[str, ProbePiece]) -> Iterator[ProbePiece]:
        """Twin and control task of the cells chosen on validation rows, each in the repeats that
        chose it, where there are none yet, and the details of the cell that is chosen overall.
        """
        probes = {piece.cell: piece for piece in pieces.values() if piece.kind == "probe"}
        evidence = self._evidence([key for key, p in pieces.items() if p.kind == "probe"])
        if not evidence.cells:
            return
        for name, repeats in evidence.choices().items():
            best = probes[self._cell(*name)]
            for kind in ("twin", "control"):
                if kind in self.inputs.spec.baselines and best.cell.pool != LEARNED_POOLER:
                    piece = ProbePiece(kind, replace(best.cell, kind=kind), best.layers)
                    if self._key(piece) not in pieces:
                        yield replace(piece, repeats=repeats)
        yield replace(probes[self._cell(*evidence.headline.name)], kind="details")

    def _evidence(self, keys: list[str]) -> Evidence:
        """The scores of the measured cells, for the choice among them."""
        table = probe_table(self.progress.rows(keys))
        return make_evidence(table, self.inputs.metric, {}, protocol=self.inputs.spec.protocol)

    def _cell(self, layers: str, pool: str, classifier: str, kind: str = "probe") -> ProbeCell:
        return ProbeCell(
            self.inputs.lm.name, self.inputs.texts.name, layers, pool, classifier, kind
        )

    def _key(self, piece: ProbePiece) -> str:
        digest = self.inputs.texts.digest[:16]
        repeats = [",".join(map(str, piece.repeats))] if piece.repeats else []
        return "|".join((piece.kind, self.inputs.lm.short_id, digest, piece.cell.key, *repeats))

    def _measure_missing(self, pieces: Mapping[str, ProbePiece]) -> None:
        done = self.progress.done()
        missing = [piece for key, piece in pieces.items() if key not in done]
        if not missing:
            return
        inputs, engine = self.inputs, self.inputs.spec.engine
        self._extract_for(missing)
        sent = inputs if find_engine(engine).in_process else inputs.for_workers()
        title = f"probing {short_name(inputs.lm.name)} on {inputs.texts.name}"
        with inputs.console.progress(title, len(missing)) as advance:
            for piece, result in run_pieces(
                engine, partial(measure_piece, inputs=sent), missing,
                key=lambda piece: piece.cell.key, notify=inputs.console.print,
            ):  # fmt: skip
                if isinstance(result, PieceFailed):
                    result = self._failed(piece, result)
                result.save(self.progress, self._key(piece), self.samples)
                advance(
                    1, note=f"layer {piece.cell.layers} {piece.cell.pool} {piece.cell.classifier}"
                )

    def _extract_for(self, pieces: Iterable[ProbePiece]) -> None:
        """Compute the activations first: a failure there fails the run, not a single cell."""
        kinds = {piece.kind for piece in pieces if piece.layers is not None}
        if kinds - {"twin"}:
            _ = self.inputs.activations
        if "twin" in kinds:
            _ = self.inputs.twin_activations

    def _failed(self, piece: ProbePiece, error: PieceFailed) -> PieceResult:
        if error.transient:
            raise error
        if piece.kind == "details":
            self.inputs.console.print(f"No figure details for {piece.cell.key}: {error.reason}")
            return PieceResult([])
        self.inputs.console.print(f"Cell {piece.cell.key} failed: {error.reason}")
        return PieceResult([failed_row(piece.cell, error.reason, self.inputs.metric)])
