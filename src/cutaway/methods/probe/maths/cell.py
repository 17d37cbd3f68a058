"""One cell of the probe grid: a classifier fitted on training rows and evaluated on test rows.

The decision rule is the classifier's own: for two classes and for each label of multilabel its own
threshold, for several classes the highest score. Another threshold replaces it only if it is
clearly better on the validation rows, by the main metric (F1 for multilabel). Every decision metric
uses that rule. `accuracy_ref` and `f1_ref` follow the reference, with the threshold of the best
accuracy and another of the best F1 on the validation rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from numpy.typing import NDArray
from torch import Tensor

from cutaway.core.errors import BadData, BadSpec, Mismatch
from cutaway.core.textset import Task
from cutaway.measure.calibration import CRITERIA, Threshold, best_threshold, choose_threshold
from cutaway.measure.metrics import METRICS
from cutaway.measure.splits import Split
from cutaway.methods.probe.maths.classifiers import CLASSIFIERS, Classifier, classifier
from cutaway.methods.probe.maths.fitted import FitSettings, FittedProbe, ProbeOutputs
from cutaway.methods.probe.maths.nets import RaggedTokens
from cutaway.solvers.rows import RowBlocks, check_finite

__all__ = [
    "CLASSIFIERS",
    "ProbeOutcome",
    "RaggedTokens",
    "RowBlocks",
    "probe_split",
    "probe_splits",
    "classifier",
    "encode_labels",
]

ProbeFeatures = Shaped[Tensor, "n d"] | RowBlocks | RaggedTokens


@dataclass(frozen=True, eq=False)
class ProbeOutcome:
    """The result of one classifier on one split."""

    metrics: dict[str, float]
    n_train: int
    n_val: int
    n_test: int
    parameters: int
    thresholds: tuple[float, ...]
    """Of the decision rule: one for binary, one per label for multilabel."""
    scores: NDArray[np.float64]
    """The classifier's scores of the test rows."""
    outputs: ProbeOutputs
    """Truth and outputs on the test rows, from which the metrics follow."""
    validation: ProbeOutputs
    """The same on the validation rows, by which cells are chosen."""
    notes: dict[str, Any]

    @property
    def decisions(self) -> NDArray[Any]:
        """Decisions on the test rows; values for regression."""
        return self.outputs.decisions


def probe_split(
    x: ProbeFeatures,
    y: NDArray[Any],
    split: Split,
    given: Any,
    *,
    task: Task,
    classes: Sequence[str] = (),
    seed: int = 0,
    balanced: bool = False,
    metric: str = "accuracy",
) -> ProbeOutcome:
    """Fit and evaluate a classifier (a name, an estimator or a torch module) on one split."""
    return probe_splits(
        x, y, [split], given, task=task, classes=classes, seed=seed, balanced=balanced,
        metric=metric,
    )[0]  # fmt: skip


def probe_splits(
    x: ProbeFeatures,
    y: NDArray[Any],
    splits: Sequence[Split],
    given: Any,
    *,
    task: Task,
    classes: Sequence[str] = (),
    seed: int = 0,
    balanced: bool = False,
    metric: str = "accuracy",
) -> list[ProbeOutcome]:
    """Fit and evaluate a classifier on every split, all at once if the classifier can.

    `metric` is the main one: decisions aim at it if it is one of CRITERIA, else at accuracy.
    """
    row = classifier(given)
    labels, names = encode_labels(y, task, classes)
    settings = FitSettings(task, len(names), seed, balanced, decision_criterion(metric))
    row.check(settings)
    _check_compatible(x, labels, row)
    fits = _fit_splits(row, x, torch.from_numpy(labels), splits, settings)
    return [
        evaluate_fit(fit, x, labels, split, settings)
        for fit, split in zip(fits, splits, strict=True)
    ]


def decision_criterion(metric: str) -> str:
    """The metric that decisions aim at, given the main one."""
    return metric if metric in CRITERIA else "accuracy"


def _fit_splits(
    row: Classifier, x: ProbeFeatures, y: Tensor, splits: Sequence[Split], settings: FitSettings
) -> list[FittedProbe]:
    if row.fit_splits is not None and not isinstance(x, RaggedTokens):
        return row.fit_splits(x, y, splits, settings)
    return [
        row.fit(
            take_rows(x, split.train),
            y[torch.from_numpy(split.train)],
            take_rows(x, split.val),
            y[torch.from_numpy(split.val)],
            task=settings.task,
            classes=settings.classes,
            # Each repeat has its own initial weights, so that their variance is included.
            seed=settings.seed + split.repeat,
            balanced=settings.balanced,
        )
        for split in splits
    ]


def evaluate_fit(
    fitted: FittedProbe, x: ProbeFeatures, labels: NDArray[Any], split: Split, settings: FitSettings
) -> ProbeOutcome:
    """Evaluate a fitted classifier: thresholds from validation rows, metrics from test rows."""
    scores = fitted.scores(x).cpu().numpy()
    thresholds = _decision_thresholds(fitted, scores, labels, split, settings)
    other = _decisions_per_metric(scores, labels, split) if settings.task == "binary" else {}

    def outputs(rows: NDArray[Any], tuned: dict[str, NDArray[Any]]) -> ProbeOutputs:
        raw = scores[rows]
        chance = _probabilities(fitted, x, raw, rows, settings)
        decided = _decide(raw, thresholds, settings)
        ranks = _ranking_scores(raw, chance, fitted)
        return ProbeOutputs(settings.task, labels[rows], decided, ranks, chance, tuned)

    tested = outputs(split.test, {name: made[split.test] for name, made in other.items()})
    validated = outputs(split.val, {name: made[split.val] for name, made in other.items()})
    metrics = tested.metrics()
    lead = "r2" if settings.task == "regression" else "accuracy"
    trained = _decide(scores[split.train], thresholds, settings)
    metrics[f"{lead}_train"] = METRICS[lead](labels[split.train], trained)
    return ProbeOutcome(
        metrics,
        len(split.train),
        len(split.val),
        len(split.test),
        fitted.parameters,
        tuple(cut.value for cut in thresholds),
        scores[split.test],
        tested,
        validated,
        dict(fitted.notes),
    )


def _decision_thresholds(
    fitted: FittedProbe,
    scores: NDArray[Any],
    labels: NDArray[Any],
    split: Split,
    settings: FitSettings,
) -> tuple[Threshold, ...]:
    """The thresholds of the decision rule, one per label; none for several classes and values.

    The classifier's own, or the best one of the training rows if it has none, unless the validation
    rows show that another is better.
    """
    if settings.task not in ("binary", "multilabel"):
        return ()
    criterion = settings.criterion if settings.task == "binary" else "f1"
    made, n = [], len(labels)
    for values, truth in zip(scores.reshape(n, -1).T, labels.reshape(n, -1).T, strict=True):
        own = fitted.own_cut
        if np.isnan(own):
            own = best_threshold(values[split.train], truth[split.train], metric=criterion).value
        made.append(choose_threshold(values[split.val], truth[split.val], own, metric=criterion))
    return tuple(made)


def _decide(
    scores: NDArray[Any], thresholds: tuple[Threshold, ...], settings: FitSettings
) -> NDArray[Any]:
    if settings.task == "regression":
        return scores
    if settings.task == "multiclass":
        return scores.argmax(1)
    if settings.task == "binary":
        return thresholds[0](scores).astype(np.int64)
    return np.stack([cut(scores[:, k]) for k, cut in enumerate(thresholds)], 1).astype(np.int64)


def _decisions_per_metric(
    scores: NDArray[Any], labels: NDArray[Any], split: Split
) -> dict[str, NDArray[np.int64]]:
    """Decisions on all rows at the best threshold for accuracy and at the best one for F1."""
    made = {}
    for name in ("accuracy", "f1"):
        cut = best_threshold(scores[split.val], labels[split.val], metric=name)
        made[name] = cut(scores).astype(np.int64)
    return made


def _probabilities(
    fitted: FittedProbe,
    x: ProbeFeatures,
    scores: NDArray[Any],
    rows: NDArray[Any],
    settings: FitSettings,
) -> NDArray[Any] | None:
    """Probabilities of some rows, if the classifier has them and the task needs them."""
    if settings.task not in ("binary", "multiclass"):
        return None
    # Most probabilities follow from the scores; the features are only read again if not.
    features = None if fitted.predict_proba is None else take_rows(x, rows)
    found = fitted.probabilities(features, torch.from_numpy(scores))
    return None if found is None else found.cpu().numpy()


def _ranking_scores(
    scores: NDArray[Any], chance: NDArray[Any] | None, fitted: FittedProbe
) -> NDArray[Any]:
    """Scores that can be compared between rows.

    Scores of several classes are only defined up to a constant per row, so probabilities are
    compared instead (their logarithms if the scores are logits, which keeps more digits).
    """
    if scores.ndim == 1 or chance is None:
        return scores
    if fitted.link == "logit":
        return torch.log_softmax(torch.from_numpy(scores), 1).numpy()
    return chance


def take_rows(x: ProbeFeatures, rows: NDArray[Any]) -> Any:
    """The chosen rows of features of any kind."""
    index = torch.from_numpy(np.asarray(rows, dtype=np.int64))
    return x[index] if isinstance(x, Tensor) else x.take(index)


def encode_labels(
    y: NDArray[Any], task: Task, classes: Sequence[str] = ()
) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Labels as numbers, with the names of their classes; BadData if one is missing."""
    given = np.asarray(y)
    if given.dtype.kind == "f" and not bool(np.isfinite(given).all()):
        raise BadData(f"{int((~np.isfinite(given)).sum())} labels are missing or infinite.")
    if task == "regression":
        return given.astype(np.float64), ("value",)
    if given.dtype.kind in "OUS":
        words = given.astype(str).tolist()
        names = tuple(classes) or tuple(sorted(set(words)))
        return _class_indices(words, names), names
    count = given.shape[1] if task == "multilabel" else int(given.max(initial=1)) + 1
    return given.astype(np.int64), tuple(classes) or tuple(str(k) for k in range(count))


def _class_indices(words: list[str], names: tuple[str, ...]) -> NDArray[np.int64]:
    place = {name: k for k, name in enumerate(names)}
    unknown = sorted(set(words) - set(place))
    if unknown:
        raise BadData(f"Label {unknown[0]!r} is not one of the classes {', '.join(names)}.")
    return np.array([place[word] for word in words], dtype=np.int64)


def _check_compatible(x: ProbeFeatures, labels: NDArray[Any], row: Classifier) -> None:
    """Raise if features, labels and classifier don't fit together."""
    count = x.n if isinstance(x, RowBlocks) else len(x)
    if count != len(labels):
        raise Mismatch(f"{count} rows of features for {len(labels)} labels.")
    if isinstance(x, RaggedTokens) != (row.kind == "tokens"):
        wanted = "the vectors of all tokens" if row.kind == "tokens" else "one vector per text"
        raise BadSpec(f"Classifier {row.name!r} needs {wanted}.")
    if isinstance(x, RowBlocks) and not row.streams:
        able = ", ".join(name for name, other in CLASSIFIERS.items() if other.streams)
        raise BadSpec(
            f"Classifier {row.name!r} needs all features in memory. Those that don't: {able}."
        )
    check_finite(x.values if isinstance(x, RaggedTokens) else x)
