"""What the figures of one probe show: confusion matrix, ROC curves, scores, projections."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_curve
from torch import Tensor

from cutaway.measure.metrics import auc
from cutaway.measure.splits import Split
from cutaway.methods.probe.details import (
    AnyDetail,
    ConfusionMatrix,
    Projection,
    RocCurve,
    ScoreHistogram,
)
from cutaway.methods.probe.inputs import ProbeInputs
from cutaway.methods.probe.maths.cell import ProbeOutcome
from cutaway.methods.probe.maths.projection import ProbeProjection, project_2d

MAX_POINTS = 400
"""Points of a projection."""
ROC_POINTS = 200
"""Points of a ROC curve."""
MAX_ROC_CLASSES = 10
TEXT_CHARS = 120


def shown_rows(split: Split) -> NDArray[np.int64]:
    """The test rows that a projection shows."""
    return np.sort(split.test)[:MAX_POINTS]


def cell_details(
    where: dict[str, Any], outcome: ProbeOutcome, states: Any, split: Split, inputs: ProbeInputs
) -> list[AnyDetail]:
    """Confusion matrix, ROC curves, score histogram and projections, as far as the task has them.

    `states` are the features of the shown rows.
    """
    texts, truth = inputs.texts, inputs.labels[split.test]
    details: list[AnyDetail] = []
    if texts.task in ("binary", "multiclass"):
        details.append(_confusion_matrix(where, texts.classes, truth, outcome))
        details += _roc_curves(where, texts.classes, truth, outcome)
    if texts.task == "binary":
        details.append(_score_histogram(where, texts.classes, truth, outcome))
    if isinstance(states, Tensor) and texts.task != "multilabel":
        methods: tuple[ProbeProjection, ...] = ("pca", "lda")
        for method in methods[: 1 if texts.task == "regression" else 2]:
            details.append(_projection(where, method, states.float(), shown_rows(split), inputs))
    return details


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
