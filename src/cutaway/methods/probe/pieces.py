"""What each kind of piece of the probe grid measures, all on the same splits.

probe     one cell: a classifier on the features of one layer mix and pooler
twin      the same cell on the model with random weights
control   the same cell on the control task (random labels by word)
mdl       the minimum description length of the labels given the features
baseline  a classifier on the words of the texts
details   what the figures of the chosen cell show, from one fit
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.measure.baselines import Baseline, fit_baseline
from cutaway.measure.repeats import RepeatMetrics, RowScores
from cutaway.measure.splits import SHARED_TEST_PROTOCOLS, Split
from cutaway.methods.probe.details import AnyDetail, LossCurves
from cutaway.methods.probe.inputs import ProbeInputs
from cutaway.methods.probe.maths.cell import (
    ProbeOutcome,
    RaggedTokens,
    decision_criterion,
    evaluate_fit,
    probe_splits,
    take_rows,
)
from cutaway.methods.probe.maths.fitted import FitSettings, FittedProbe, ProbeOutputs
from cutaway.methods.probe.maths.layer_mix import LayerMix
from cutaway.methods.probe.rows import (
    WORDS_SEEN,
    PieceResult,
    ProbeCell,
    cell_result,
    row_coordinates,
)
from cutaway.methods.probe.spec import TIE_METRIC, VALIDATION_SUFFIX
from cutaway.store.samples import prediction_frame


@dataclass(frozen=True)
class ProbePiece:
    """One piece of the grid: its kind, its cell and the layers it reads."""

    kind: str
    """A row of PIECE_KINDS."""
    cell: ProbeCell
    layers: LayerMix | None = None
    repeats: tuple[int, ...] = ()
    """Only these repeats; all if empty."""

    def splits(self, inputs: ProbeInputs) -> tuple[Split, ...]:
        """The splits that it is measured on."""
        if not self.repeats:
            return inputs.splits
        return tuple(split for split in inputs.splits if split.repeat in self.repeats)


def measure_piece(piece: ProbePiece, inputs: ProbeInputs) -> PieceResult:
    """The rows of a piece, and the details of its figures."""
    return PIECE_KINDS[piece.kind](piece, inputs)


def _measure_probe(piece: ProbePiece, inputs: ProbeInputs) -> PieceResult:
    main = inputs.metric
    # Cells are chosen by the main metric on the validation rows, then by AUC.
    names = (main,) if inputs.texts.task == "regression" else (main, TIE_METRIC)
    outcomes = [
        replace(
            one,
            metrics=one.metrics | {m + VALIDATION_SUFFIX: one.validation.value(m) for m in names},
        )
        for one in _fit(piece, inputs, inputs.labels, inputs.splits)
    ]
    return _result(piece, inputs, outcomes, _loss_curves(piece.cell, outcomes[0]))


def _measure_twin(piece: ProbePiece, inputs: ProbeInputs) -> PieceResult:
    splits = piece.splits(inputs)
    return _result(piece, inputs, _fit(piece, inputs, inputs.labels, splits, of_twin=True))


def _measure_control(piece: ProbePiece, inputs: ProbeInputs) -> PieceResult:
    from cutaway.measure.control import control_task

    texts, fixed = inputs.texts, inputs.spec.protocol in SHARED_TEST_PROTOCOLS
    task = control_task(
        texts.texts, inputs.labels, seed=inputs.spec.seed, parts=texts.parts if fixed else None
    )
    splits = piece.splits(inputs)
    outcomes = [
        replace(one, metrics=one.metrics | {WORDS_SEEN: task.seen(split)})
        for split, one in zip(splits, _fit(piece, inputs, task.labels, splits), strict=True)
    ]
    return _result(piece, inputs, outcomes)


def _fit(
    piece: ProbePiece,
    inputs: ProbeInputs,
    labels: NDArray[Any],
    splits: tuple[Split, ...],
    *,
    of_twin: bool = False,
) -> list[ProbeOutcome]:
    """The cell's classifier on these splits of its features."""
    assert piece.layers is not None
    states = inputs.states(piece.layers, piece.cell.pool, of_twin=of_twin)
    name, texts, spec = piece.cell.classifier, inputs.texts, inputs.spec
    return probe_splits(
        states, labels, splits, inputs.classifiers.get(name, name), task=texts.task,
        classes=texts.classes, seed=spec.seed, balanced=spec.class_weight == "balanced",
        metric=inputs.metric,
    )  # fmt: skip


def _result(
    piece: ProbePiece,
    inputs: ProbeInputs,
    outcomes: list[ProbeOutcome],
    details: list[AnyDetail] | None = None,
) -> PieceResult:
    repeats = [
        RepeatMetrics.of(
            split,
            {**outcome.metrics, "parameters": float(outcome.parameters)},
            _row_scores(inputs, split, outcome.outputs),
        )
        for split, outcome in zip(piece.splits(inputs), outcomes, strict=True)
    ]
    outputs = [outcome.outputs for outcome in outcomes]
    return _with_samples(piece, inputs, repeats, outputs, details or [])


def _with_samples(
    piece: ProbePiece,
    inputs: ProbeInputs,
    repeats: list[RepeatMetrics],
    outputs: list[ProbeOutputs],
    details: list[AnyDetail],
) -> PieceResult:
    """The result of a cell, with the predictions on its test rows if they were asked for."""
    result = cell_result(piece.cell, repeats, details, inputs.metric)
    if not inputs.spec.samples:
        return result
    frames = [
        prediction_frame(
            row_coordinates(piece.cell, repeat),
            part="test",
            rows=split.test.tolist(),
            digests=inputs.digests,
            truth=_label_names(inputs, given.truth),
            answer=_label_names(inputs, given.decisions),
            score=given.answer_scores().tolist(),
        )
        for split, repeat, given in zip(piece.splits(inputs), repeats, outputs, strict=True)
    ]
    return replace(result, samples=pl.concat(frames))


def _label_names(inputs: ProbeInputs, labels: NDArray[Any]) -> list[str]:
    """Labels as text: class names, those of a multilabel row joined, exact numbers."""
    texts = inputs.texts
    if texts.task == "regression":
        return [repr(float(value)) for value in labels]
    if texts.task == "multilabel":
        rows = (zip(texts.classes, row, strict=True) for row in labels)
        return [", ".join(name for name, mark in row if mark) for row in rows]
    names = dict(enumerate(texts.classes))
    return [names.get(int(value), str(int(value))) for value in labels]


def _row_scores(inputs: ProbeInputs, split: Split, outputs: ProbeOutputs) -> dict[str, RowScores]:
    """What the test rows tell about the main metric of each repeat.

    The other metrics are never compared, so theirs are only computed for the first repeat.
    """
    blocks, count = inputs.blocks[split.test], int(inputs.blocks.max()) + 1
    if split.repeat == inputs.splits[0].repeat:
        return outputs.all_row_scores(blocks, count)
    return {inputs.metric: outputs.row_scores(blocks, count, inputs.metric)}


def _loss_curves(cell: ProbeCell, outcome: ProbeOutcome) -> list[AnyDetail]:
    """The loss curves of the first split, for classifiers trained by gradients."""
    notes = outcome.notes
    if "train_loss" not in notes:
        return []
    curves = LossCurves(
        **_coordinates(cell), train=tuple(notes["train_loss"]),
        validation=tuple(notes["val_loss"]), kept=notes["best_epoch"],
    )  # fmt: skip
    return [curves]


def _coordinates(cell: ProbeCell) -> dict[str, Any]:
    """The columns by which details name a cell."""
    return {k: getattr(cell, k) for k in ("model", "data", "layers", "pool", "classifier")}


def _measure_mdl(piece: ProbePiece, inputs: ProbeInputs) -> PieceResult:
    """The online code length of the training labels of one split: one number for the cell."""
    from cutaway.methods.probe.maths.mdl import code_length

    assert piece.layers is not None
    states, rows = inputs.states(piece.layers, piece.cell.pool), inputs.coded_rows
    assert not isinstance(states, RaggedTokens)
    code = code_length(
        states, inputs.labels, classes=len(inputs.texts.classes), seed=inputs.spec.seed,
        chosen_rows=rows,
    )  # fmt: skip
    metrics = {
        "mdl_bits": code.bits,
        "mdl_prior_bits": code.prior_bits,
        "mdl_uniform_bits": code.uniform_bits,
        "mdl_compression": code.compression,
    }
    repeat = RepeatMetrics(0, len(rows), 0, 0, metrics)
    return cell_result(piece.cell, [repeat], [], inputs.metric)


def _measure_baseline(piece: ProbePiece, inputs: ProbeInputs) -> PieceResult:
    labels, texts = inputs.labels, inputs.texts
    repeats: list[RepeatMetrics] = []
    every: list[ProbeOutputs] = []
    rows, link = (
        torch.arange(len(labels))[:, None],
        "value" if texts.task == "regression" else "probability",
    )
    settings = FitSettings(
        texts.task, max(1, len(texts.classes)), criterion=decision_criterion(inputs.metric)
    )
    for split in inputs.splits:
        model = fit_baseline(
            piece.cell.classifier, inputs.words, labels, split, task=texts.task,
            n_classes=len(texts.classes),
        )  # fmt: skip
        # A classifier whose features are the row numbers: the same decision rule as for probes.
        fitted = FittedProbe(partial(_baseline_scores, model), link, 0)  # type: ignore[arg-type]
        outcome = evaluate_fit(fitted, rows, labels, split, settings)
        scores = _row_scores(inputs, split, outcome.outputs)
        repeats.append(RepeatMetrics.of(split, outcome.metrics, scores))
        every.append(outcome.outputs)
    return _with_samples(piece, inputs, repeats, every, [])


def _baseline_scores(model: Baseline, rows: Tensor) -> Tensor:
    return torch.from_numpy(np.asarray(model(rows[:, 0].numpy()).scores, dtype=np.float64))


def _measure_details(piece: ProbePiece, inputs: ProbeInputs) -> PieceResult:
    """From the last split, which has the full training size of a learning curve."""
    from cutaway.methods.probe.cell_details import cell_details, shown_rows

    assert piece.layers is not None
    split = inputs.splits[-1]
    outcome = _fit(piece, inputs, inputs.labels, (split,))[0]
    states = take_rows(inputs.states(piece.layers, piece.cell.pool), shown_rows(split))
    return PieceResult([], cell_details(_coordinates(piece.cell), outcome, states, split, inputs))


PIECE_KINDS: dict[str, Callable[[ProbePiece, ProbeInputs], PieceResult]] = {
    "probe": _measure_probe,
    "twin": _measure_twin,
    "control": _measure_control,
    "mdl": _measure_mdl,
    "baseline": _measure_baseline,
    "details": _measure_details,
}
