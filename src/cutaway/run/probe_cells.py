"""What each kind of piece measures: a cell, its twin, its control task, its code length, or the
text baselines, all on the same splits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cutaway.measure.baselines import fit_baseline
from cutaway.measure.control import control_labels
from cutaway.measure.splits import Split
from cutaway.methods.probe import Cell as Outcome
from cutaway.methods.probe import Ragged, cells
from cutaway.methods.probe_layers import LayerMix
from cutaway.methods.probe_mdl import code_length
from cutaway.methods.probe_said import Said
from cutaway.report.details import AnyDetail, Losses
from cutaway.run.probe_rows import MAIN, Cell, Measured

if TYPE_CHECKING:
    from cutaway.run.probe_work import Work

Measurement = tuple[list[Measured], list[AnyDetail]]


@dataclass(frozen=True)
class Job:
    """One piece of work: what kind, for which cell, from which layers."""

    what: str
    cell: Cell
    layers: LayerMix | None = None


def measure(job: Job, work: "Work") -> Measurement:
    """The metrics of every split, and what figures need besides."""
    return KINDS[job.what](job, work)


def _probe(job: Job, work: "Work") -> Measurement:
    return _fit(job, work, np.asarray(work.texts.labels), of_twin=False)


def _twin(job: Job, work: "Work") -> Measurement:
    return _fit(job, work, np.asarray(work.texts.labels), of_twin=True)[0], []


def _control(job: Job, work: "Work") -> Measurement:
    labels = np.asarray(work.texts.labels)
    random = control_labels(work.texts.texts, labels, seed=work.spec.seed)
    return _fit(job, work, random, of_twin=False)[0], []


def _fit(job: Job, work: "Work", labels: NDArray[Any], *, of_twin: bool) -> Measurement:
    """One classifier on every split of one feature matrix."""
    assert job.layers is not None
    name = job.cell.classifier
    outcomes = cells(
        work.states(job.layers, job.cell.pool, of_twin=of_twin), labels, work.splits,
        work.objects.get(name, name), task=work.texts.task, classes=work.texts.classes,
        seed=work.spec.seed, balanced=work.spec.class_weight == "balanced",
    )  # fmt: skip
    pairs = zip(work.splits, outcomes, strict=True)
    measured = [
        Measured.of(split, _with_size(outcome), _blocks(work, split, outcome.said))
        for split, outcome in pairs
    ]
    return measured, _losses(job.cell, outcomes[0])


def _blocks(work: "Work", split: Split, said: Said) -> dict[str, tuple[float, ...]]:
    """Pseudo-values over blocks of shared test rows; none where repeats draw their own.

    Of the main metric for each repeat; of the others, which no verdict compares, for the first.
    """
    if split.tested is None:
        return {}
    mine, count = work.blocks[split.test], int(work.blocks.max()) + 1
    if split is work.splits[0]:
        return said.all_blocks(mine, count)
    main = MAIN[work.texts.task]
    return {main: said.blocks(mine, count, main)}


def _with_size(outcome: Outcome) -> Mapping[str, float]:
    return {**outcome.metrics, "parameters": float(outcome.parameters)}


def _losses(cell: Cell, outcome: Outcome) -> list[AnyDetail]:
    """The loss curve of the first split, where the classifier was trained by gradients."""
    notes = outcome.notes
    if "train_loss" not in notes:
        return []
    return [
        Losses(
            **coordinates(cell), train=tuple(notes["train_loss"]),
            validation=tuple(notes["val_loss"]), kept=notes["best_epoch"],
        )
    ]  # fmt: skip


def coordinates(cell: Cell) -> dict[str, Any]:
    """The words by which details name a cell."""
    return {k: getattr(cell, k) for k in ("model", "data", "layers", "pool", "classifier")}


def _mdl(job: Job, work: "Work") -> Measurement:
    """The online code of all labels: one number for the cell, not one per split."""
    assert job.layers is not None
    states = work.states(job.layers, job.cell.pool)
    assert not isinstance(states, Ragged)
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
    return [Measured(0, n, 0, n, metrics)], []


def _text(job: Job, work: "Work") -> Measurement:
    """A baseline on the words alone."""
    labels, texts = np.asarray(work.texts.labels), work.texts
    measured = []
    for split in work.splits:
        model = fit_baseline(
            job.cell.classifier, work.words, labels, split, task=texts.task,
            n_classes=len(texts.classes),
        )  # fmt: skip
        found = model(split.test)
        said = Said(
            texts.task, labels[split.test], found.decisions, found.scores, chance=found.scores
        )
        measured.append(Measured.of(split, said.metrics(), _blocks(work, split, said)))
    return measured, []


KINDS: dict[str, Callable[[Job, "Work"], Measurement]] = {
    "probe": _probe,
    "twin": _twin,
    "control": _control,
    "mdl": _mdl,
    "baseline": _text,
}
