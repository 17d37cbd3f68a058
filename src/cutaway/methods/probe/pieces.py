"""What each kind of piece of the probe grid measures, all on the same splits.

probe     one cell: a classifier on the features of one layer mix and pooler
twin      the same cell on the model with random weights
control   the same cell on the control task (random labels by word)
mdl       the minimum description length of the labels given the features
baseline  a classifier on the words of the texts
details   what the figures of the best cell show, from one fit
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_curve
from torch import Tensor

from cutaway.measure.baselines import Baseline, control_labels, fit_baseline
from cutaway.measure.metrics import auc
from cutaway.measure.repeats import RepeatMetrics
from cutaway.measure.splits import Split
from cutaway.methods.probe.details import (
    AnyDetail,
    ConfusionMatrix,
    LossCurves,
    Projection,
    RocCurve,
    ScoreHistogram,
)
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
from cutaway.methods.probe.maths.mdl import code_length
from cutaway.methods.probe.maths.projection import ProbeProjection, project_2d
from cutaway.methods.probe.rows import (
    PieceResult,
    ProbeCell,
    cell_result,
    row_coordinates,
)
from cutaway.store.samples import prediction_frame

MAX_POINTS = 400
"""Points of a projection."""
ROC_POINTS = 200
"""Points of a ROC curve."""
MAX_ROC_CLASSES = 10
TEXT_CHARS = 120


@dataclass(frozen=True)
class ProbePiece:
    """One piece of the grid: its kind, its cell and the layers it reads."""

    kind: str
    """A row of PIECE_KINDS."""
    cell: ProbeCell
    layers: LayerMix | None = None


def measure_piece(piece: ProbePiece, inputs: ProbeInputs) -> PieceResult:
    """The rows of a piece, and the details of its figures."""
    return PIECE_KINDS[piece.kind](piece, inputs)


def _measure_probe(piece: ProbePiece, inputs: ProbeInputs) -> PieceResult:
    outcomes = _fit(piece, inputs, inputs.labels, inputs.splits)
    return _result(piece, inputs, outcomes, _loss_curves(piece.cell, outcomes[0]))


def _measure_twin(piece: ProbePiece, inputs: ProbeInputs) -> PieceResult:
    return _result(piece, inputs, _fit(piece, inputs, inputs.labels, inputs.splits, of_twin=True))


def _measure_control(piece: ProbePiece, inputs: ProbeInputs) -> PieceResult:
    labels = control_labels(inputs.texts.texts, inputs.labels, seed=inputs.spec.seed)
    return _result(piece, inputs, _fit(piece, inputs, labels, inputs.splits))


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
            _pseudo_values(inputs, split, outcome.outputs),
        )
        for split, outcome in zip(inputs.splits, outcomes, strict=True)
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
        for split, repeat, given in zip(inputs.splits, repeats, outputs, strict=True)
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


def _pseudo_values(
    inputs: ProbeInputs, split: Split, outputs: ProbeOutputs
) -> dict[str, tuple[float, ...]]:
    """Jackknife pseudo-values over blocks of shared test rows; none if repeats draw their own.

    For the main metric of each repeat. The other metrics are never compared, so theirs are only
    computed for the first repeat.
    """
    if split.tested is None:
        return {}
    blocks, count = inputs.blocks[split.test], int(inputs.blocks.max()) + 1
    if split is inputs.splits[0]:
        return outputs.all_pseudo_values(blocks, count)
    return {inputs.metric: outputs.pseudo_values(blocks, count, inputs.metric)}


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
        pseudo = _pseudo_values(inputs, split, outcome.outputs)
        repeats.append(RepeatMetrics.of(split, outcome.metrics, pseudo))
        every.append(outcome.outputs)
    return _with_samples(piece, inputs, repeats, every, [])


def _baseline_scores(model: Baseline, rows: Tensor) -> Tensor:
    return torch.from_numpy(np.asarray(model(rows[:, 0].numpy()).scores, dtype=np.float64))


def _measure_details(piece: ProbePiece, inputs: ProbeInputs) -> PieceResult:
    """Confusion matrix, ROC curves, score histogram and projections, as far as the task has them.

    From the last split, which has the full training size of a learning curve.
    """
    assert piece.layers is not None
    split, texts = inputs.splits[-1], inputs.texts
    outcome = _fit(piece, inputs, inputs.labels, (split,))[0]
    where, truth = _coordinates(piece.cell), inputs.labels[split.test]
    details: list[AnyDetail] = []
    if texts.task in ("binary", "multiclass"):
        details.append(_confusion_matrix(where, texts.classes, truth, outcome))
        details += _roc_curves(where, texts.classes, truth, outcome)
    if texts.task == "binary":
        details.append(_score_histogram(where, texts.classes, truth, outcome))
    rows = np.sort(split.test)[:MAX_POINTS]
    states = take_rows(inputs.states(piece.layers, piece.cell.pool), rows)
    if isinstance(states, Tensor) and texts.task != "multilabel":
        methods: tuple[ProbeProjection, ...] = ("pca", "lda")
        for method in methods[: 1 if texts.task == "regression" else 2]:
            details.append(_projection(where, method, states.float(), rows, inputs))
    return PieceResult([], details)


def _confusion_matrix(
    where: dict[str, Any], classes: tuple[str, ...], truth: NDArray[Any], outcome: ProbeOutcome
) -> ConfusionMatrix:
    counts = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(counts, (truth.astype(int), outcome.decisions.astype(int)), 1)
    return ConfusionMatrix(**where, classes=classes, counts=tuple(map(tuple, counts.tolist())))


def _roc_curves(
    where: dict[str, Any], classes: tuple[str, ...], truth: NDArray[Any], outcome: ProbeOutcome
) -> list[RocCurve]:
    """One curve for two classes, one per class against the rest for several."""
    ranks = outcome.outputs.ranks
    columns = {1: ranks} if ranks.ndim == 1 else dict(enumerate(ranks.T))
    curves = []
    for number, scores in list(columns.items())[:MAX_ROC_CLASSES]:
        positive = (truth == number).astype(int)
        if 0 < positive.sum() < len(positive):
            false_rate, true_rate, _ = roc_curve(positive, scores)
            keep = np.unique(np.linspace(0, len(false_rate) - 1, ROC_POINTS).astype(int))
            curve = RocCurve(
                **where, label=classes[number], false_positive=tuple(false_rate[keep].tolist()),
                true_positive=tuple(true_rate[keep].tolist()), auc=auc(positive, scores),
            )  # fmt: skip
            curves.append(curve)
    return curves


def _score_histogram(
    where: dict[str, Any], classes: tuple[str, ...], truth: NDArray[Any], outcome: ProbeOutcome
) -> ScoreHistogram:
    edges = np.histogram_bin_edges(outcome.scores, bins=30)
    counts = {
        name: tuple(np.histogram(outcome.scores[truth == number], edges)[0].tolist())
        for number, name in enumerate(classes)
    }
    threshold = outcome.thresholds[0]
    return ScoreHistogram(**where, edges=tuple(edges.tolist()), counts=counts, threshold=threshold)


def _projection(
    where: dict[str, Any],
    method: ProbeProjection,
    states: Tensor,
    rows: NDArray[Any],
    inputs: ProbeInputs,
) -> Projection:
    labels, texts = inputs.labels[rows], inputs.texts
    names: tuple[float, ...] | tuple[str, ...] = tuple(float(v) for v in labels)
    classes = None
    if texts.task != "regression":
        classes = torch.from_numpy(labels.astype(int))
        names = tuple(texts.classes[int(v)] for v in labels)
    points = project_2d(states, classes, method)
    return Projection(
        **where, way=method, x=tuple(points[:, 0].tolist()), y=tuple(points[:, 1].tolist()),
        labels=names, texts=tuple(texts.texts[i][:TEXT_CHARS] for i in rows),
    )  # fmt: skip


PIECE_KINDS: dict[str, Callable[[ProbePiece, ProbeInputs], PieceResult]] = {
    "probe": _measure_probe,
    "twin": _measure_twin,
    "control": _measure_control,
    "mdl": _measure_mdl,
    "baseline": _measure_baseline,
    "details": _measure_details,
}
