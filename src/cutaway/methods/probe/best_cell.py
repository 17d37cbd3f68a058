"""What the figures of a best cell need beyond one number: who was mistaken for whom, the ROC
curve, the scores with their cut, the states in two dimensions. Of the first split."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_curve
from torch import Tensor

from cutaway.measure.metrics import auc
from cutaway.methods.probe.cells import ProbePiece, cell_coordinates
from cutaway.methods.probe.maths.cell import ProbeOutcome as Outcome
from cutaway.methods.probe.maths.cell import probe_split as fit_cell
from cutaway.methods.probe.maths.cell import take_rows
from cutaway.methods.probe.maths.projection import ProbeProjection, project_2d
from cutaway.report.details import AnyDetail, ConfusionMatrix, Projection, RocCurve, ScoreHistogram

if TYPE_CHECKING:
    from cutaway.methods.probe.grid import ProbeGrid

MAX_POINTS = 400
"""Points in a projection: enough to see, few enough to stay fluid."""
ROC_POINTS = 200
"""Points of a ROC curve."""
TEXT_CHARS = 120


def best_cell_details(job: ProbePiece, work: "ProbeGrid") -> list[AnyDetail]:
    """Every detail the task allows, for one cell."""
    assert job.layers is not None
    states, name = work.states(job.layers, job.cell.pool), job.cell.classifier
    labels, split = np.asarray(work.texts.labels), work.splits[-1]
    outcome = fit_cell(
        states, labels, split, work.objects.get(name, name), task=work.texts.task,
        classes=work.texts.classes, seed=work.spec.seed,
        balanced=work.spec.class_weight == "balanced",
    )  # fmt: skip
    where, classes = cell_coordinates(job.cell), work.texts.classes
    made: list[AnyDetail] = []
    if work.texts.task in ("binary", "multiclass"):
        made.append(_confusion_matrix(where, classes, labels[split.test], outcome))
        made += _roc_curves(where, classes, labels[split.test], outcome)
    if work.texts.task == "binary":
        made.append(_score_histogram(where, classes, labels[split.test], outcome))
    chosen = np.sort(split.test)[:MAX_POINTS]
    picked = take_rows(states, chosen)
    if isinstance(picked, Tensor) and work.texts.task != "multilabel":
        ways: tuple[ProbeProjection, ...] = (
            ("pca",) if work.texts.task == "regression" else ("pca", "lda")
        )
        made += [_projection(where, way, picked.float(), chosen, work) for way in ways]
    return made


def _confusion_matrix(
    where: dict[str, Any], classes: tuple[str, ...], truth: NDArray[Any], outcome: Outcome
) -> ConfusionMatrix:
    counts = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(counts, (truth.astype(int), outcome.decisions.astype(int)), 1)
    return ConfusionMatrix(**where, classes=classes, counts=tuple(map(tuple, counts.tolist())))


def _roc_curves(
    where: dict[str, Any], classes: tuple[str, ...], truth: NDArray[Any], outcome: Outcome
) -> list[AnyDetail]:
    """One curve for two classes, one against the rest for several."""
    ranks = outcome.said.ranks
    columns = {1: ranks} if ranks.ndim == 1 else dict(enumerate(ranks.T))
    curves: list[AnyDetail] = []
    for number, scores in list(columns.items())[:10]:
        mine = (truth == number).astype(int)
        if 0 < mine.sum() < len(mine):
            wrong, right, _ = roc_curve(mine, scores)
            keep = np.unique(np.linspace(0, len(wrong) - 1, ROC_POINTS).astype(int))
            curves.append(
                RocCurve(
                    **where, label=classes[number], false_positive=tuple(wrong[keep].tolist()),
                    true_positive=tuple(right[keep].tolist()), auc=auc(mine, scores),
                )
            )  # fmt: skip
    return curves


def _score_histogram(
    where: dict[str, Any], classes: tuple[str, ...], truth: NDArray[Any], outcome: Outcome
) -> ScoreHistogram:
    edges = np.histogram_bin_edges(outcome.scores, bins=30)
    counts = {
        name: tuple(np.histogram(outcome.scores[truth == number], edges)[0].tolist())
        for number, name in enumerate(classes)
    }
    return ScoreHistogram(
        **where, edges=tuple(edges.tolist()), counts=counts, threshold=outcome.thresholds[0]
    )


def _projection(
    where: dict[str, Any],
    way: ProbeProjection,
    states: Tensor,
    rows: NDArray[Any],
    work: "ProbeGrid",
) -> Projection:
    labels = np.asarray(work.texts.labels)[rows]
    numbers = None if work.texts.task == "regression" else torch.from_numpy(labels.astype(int))
    points = project_2d(states, numbers, way)
    names = (
        tuple(float(v) for v in labels)
        if numbers is None
        else tuple(work.texts.classes[int(v)] for v in labels)
    )
    return Projection(
        **where, way=way, x=tuple(points[:, 0].tolist()), y=tuple(points[:, 1].tolist()),
        labels=names, texts=tuple(work.texts.texts[i][:TEXT_CHARS] for i in rows),
    )  # fmt: skip
