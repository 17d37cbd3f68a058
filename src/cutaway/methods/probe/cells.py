"""What each kind of piece measures: a cell, its twin, its control task, its code length, or the
text baselines, all on the same splits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cutaway.measure.baselines import fit_baseline
from cutaway.measure.control import control_labels
from cutaway.measure.repeats import RepeatMetrics
from cutaway.measure.splits import Split
from cutaway.methods.probe.maths.cell import ProbeOutcome as Outcome
from cutaway.methods.probe.maths.cell import RaggedTokens, probe_splits
from cutaway.methods.probe.maths.layer_mix import LayerMix
from cutaway.methods.probe.maths.mdl import code_length
from cutaway.methods.probe.maths.test_outputs import ProbeOutputs
from cutaway.methods.probe.rows import MAIN_METRIC, ProbeCell
from cutaway.report.details import AnyDetail, LossCurves

if TYPE_CHECKING:
    from cutaway.methods.probe.grid import ProbeGrid

Measurement = tuple[list[RepeatMetrics], list[AnyDetail]]


@dataclass(frozen=True)
class ProbePiece:
    """One piece of work: what kind, for which cell, from which layers."""

    what: str
    cell: ProbeCell
    layers: LayerMix | None = None


def measure_piece(job: ProbePiece, work: "ProbeGrid") -> Measurement:
    """The metrics of every split, and what figures need besides."""
    return PIECE_KINDS[job.what](job, work)


def _measure_probe(job: ProbePiece, work: "ProbeGrid") -> Measurement:
    return _fit_all_splits(job, work, np.asarray(work.texts.labels), of_twin=False)


def _measure_twin(job: ProbePiece, work: "ProbeGrid") -> Measurement:
    return _fit_all_splits(job, work, np.asarray(work.texts.labels), of_twin=True)[0], []


def _measure_control(job: ProbePiece, work: "ProbeGrid") -> Measurement:
    labels = np.asarray(work.texts.labels)
    random = control_labels(work.texts.texts, labels, seed=work.spec.seed)
    return _fit_all_splits(job, work, random, of_twin=False)[0], []


def _fit_all_splits(
    job: ProbePiece, work: "ProbeGrid", labels: NDArray[Any], *, of_twin: bool
) -> Measurement:
    """One classifier on every split of one feature matrix."""
    assert job.layers is not None
    name = job.cell.classifier
    outcomes = probe_splits(
        work.states(job.layers, job.cell.pool, of_twin=of_twin), labels, work.splits,
        work.objects.get(name, name), task=work.texts.task, classes=work.texts.classes,
        seed=work.spec.seed, balanced=work.spec.class_weight == "balanced",
    )  # fmt: skip
    pairs = zip(work.splits, outcomes, strict=True)
    measured = [
        RepeatMetrics.of(
            split, _metrics_with_parameters(outcome), _pseudo_values(work, split, outcome.said)
        )
        for split, outcome in pairs
    ]
    return measured, _loss_curves(job.cell, outcomes[0])


def _pseudo_values(
    work: "ProbeGrid", split: Split, said: ProbeOutputs
) -> dict[str, tuple[float, ...]]:
    """Pseudo-values over blocks of shared test rows; none where repeats draw their own.

    Of the main metric for each repeat; of the others, which no verdict compares, for the first.
    """
    if split.tested is None:
        return {}
    mine, count = work.blocks[split.test], int(work.blocks.max()) + 1
    if split is work.splits[0]:
        return said.all_blocks(mine, count)
    main = MAIN_METRIC[work.texts.task]
    return {main: said.blocks(mine, count, main)}


def _metrics_with_parameters(outcome: Outcome) -> Mapping[str, float]:
    return {**outcome.metrics, "parameters": float(outcome.parameters)}


def _loss_curves(cell: ProbeCell, outcome: Outcome) -> list[AnyDetail]:
    """The loss curve of the first split, where the classifier was trained by gradients."""
    notes = outcome.notes
    if "train_loss" not in notes:
        return []
    return [
        LossCurves(
            **cell_coordinates(cell), train=tuple(notes["train_loss"]),
            validation=tuple(notes["val_loss"]), kept=notes["best_epoch"],
        )
    ]  # fmt: skip


def cell_coordinates(cell: ProbeCell) -> dict[str, Any]:
    """The words by which details name a cell."""
    return {k: getattr(cell, k) for k in ("model", "data", "layers", "pool", "classifier")}


def _measure_mdl(job: ProbePiece, work: "ProbeGrid") -> Measurement:
    """The online code of all labels: one number for the cell, not one per split."""
    assert job.layers is not None
    states = work.states(job.layers, job.cell.pool)
    assert not isinstance(states, RaggedTokens)
    code = code_length(
        states, np.asarray(work.texts.labels),
        classes=len(work.texts.classes), seed=work.spec.seed,
    )  # fmt: skip
    metrics = {
        "mdl_bits": code.bits,
        "mdl_uniform_bits": code.uniform_bits,
        "mdl_compression": code.compression,
    }
    n = len(work.texts)
    return [RepeatMetrics(0, n, 0, n, metrics)], []


def _measure_text_baseline(job: ProbePiece, work: "ProbeGrid") -> Measurement:
    """A baseline on the words alone."""
    labels, texts = np.asarray(work.texts.labels), work.texts
    measured = []
    for split in work.splits:
        model = fit_baseline(
            job.cell.classifier, work.words, labels, split, task=texts.task,
            n_classes=len(texts.classes),
        )  # fmt: skip
        found = model(split.test)
        said = ProbeOutputs(
            texts.task, labels[split.test], found.decisions, found.scores, chance=found.scores
        )
        measured.append(RepeatMetrics.of(split, said.metrics(), _pseudo_values(work, split, said)))
    return measured, []


PIECE_KINDS: dict[str, Callable[[ProbePiece, "ProbeGrid"], Measurement]] = {
    "probe": _measure_probe,
    "twin": _measure_twin,
    "control": _measure_control,
    "mdl": _measure_mdl,
    "baseline": _measure_text_baseline,
}
