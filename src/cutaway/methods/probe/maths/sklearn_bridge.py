"""Estimators with scikit-learn's `fit` and `predict` as probes. Each fit uses a copy."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier, is_regressor
from torch import Tensor

from cutaway.core.errors import BadData, BadSpec
from cutaway.methods.probe.maths.fitted import (
    FitFunction,
    FitSettings,
    FittedProbe,
    Link,
    binary_relevance,
)

EstimatorFactory = Callable[[FitSettings, int], Any]
"""(settings, number of train rows) -> a new estimator."""


def sklearn_fit(factory: EstimatorFactory) -> FitFunction:
    """Fit estimators made by the factory; one per label for multilabel."""

    def make(
        x_train: Tensor, y_train: Tensor, x_val: Tensor, y_val: Tensor, settings: FitSettings
    ) -> FittedProbe:
        x, y = _to_numpy(x_train), y_train.cpu().numpy()
        made = factory(settings, len(x))
        # A regressor gets one column of 0 and 1 per class.
        several = settings.task == "multiclass" and _is(is_regressor, made)
        made.fit(x, np.eye(settings.classes)[y] if several else y)
        return _as_fitted_probe(made, settings)

    return binary_relevance(make)


def clone_factory(estimator: Any) -> EstimatorFactory:
    """A copy of a user's estimator for every fit, seeded if its random_state is None."""

    def factory(settings: FitSettings, n: int) -> Any:
        if settings.task == "regression" and _is(is_classifier, estimator):
            raise BadSpec(
                f"{type(estimator).__name__} is a classifier, and the targets are numbers. Give a "
                "regressor, or round the targets to classes (--as classification)."
            )
        made = _clone_estimator(estimator)
        if hasattr(made, "get_params") and made.get_params().get("random_state", 0) is None:
            made.set_params(random_state=settings.seed)
        return made

    return factory


def _is(kind: Callable[[Any], bool], estimator: Any) -> bool:
    """Whether an estimator is of a kind; one without scikit-learn's tags is of none."""
    return hasattr(estimator, "__sklearn_tags__") and kind(estimator)


def _clone_estimator(estimator: Any) -> Any:
    if hasattr(estimator, "get_params"):
        return clone(estimator)
    return deepcopy(estimator)


def _to_numpy(x: Tensor) -> NDArray[Any]:
    return (x if x.dtype == torch.float64 else x.float()).cpu().numpy()


def _as_fitted_probe(made: Any, settings: FitSettings) -> FittedProbe:
    read, link = _score_function(made, settings)
    cut = None
    if link == "margin" and not hasattr(made, "decision_function"):
        # Predictions are 0 or 1, or a regressor's values between them.
        cut = 0.5 if hasattr(made, "predict") else float("nan")

    def score(x: Tensor) -> Tensor:
        scores = np.asarray(read(_to_numpy(x)), dtype=np.float64)
        # A margin may be infinite, a probability or a value may not.
        wrong = np.isnan(scores) if link == "margin" else ~np.isfinite(scores)
        if wrong.any():
            bad = int(wrong.reshape(len(scores), -1).any(axis=1).sum())
            raise BadData(
                f"{type(made).__name__} gave scores that are no numbers for {bad} of {len(scores)} "
                "rows."
            )
        return torch.from_numpy(scores)

    def predict_proba(x: Tensor) -> Tensor:
        return torch.from_numpy(_align_columns(made.predict_proba(_to_numpy(x)), made, settings))

    known = settings.task != "regression" and hasattr(made, "predict_proba")
    notes = {"estimator": str(made)}
    return FittedProbe(
        score, link, _n_parameters(made), notes, cut=cut,
        predict_proba=predict_proba if known else None,
    )  # fmt: skip


def _score_function(
    made: Any, settings: FitSettings
) -> tuple[Callable[[NDArray[Any]], NDArray[Any]], Link]:
    """The function that gives scores: decision_function, predict_proba, predict or transform."""
    if settings.task == "regression":
        return lambda x: np.ravel(made.predict(x)), "value"
    if hasattr(made, "decision_function"):
        return lambda x: _align_columns(made.decision_function(x), made, settings), "margin"
    if hasattr(made, "predict_proba"):
        return lambda x: _align_columns(made.predict_proba(x), made, settings), "probability"
    if hasattr(made, "predict"):
        return lambda x: _predictions_as_scores(made.predict(x), settings), "margin"
    return lambda x: _predictions_as_scores(made.transform(x), settings), "margin"


def _align_columns(scores: NDArray[Any], made: Any, settings: FitSettings) -> NDArray[Any]:
    """Scores as (n,) for binary, (n, cls) otherwise; classes without training rows score lowest."""
    scores = np.asarray(scores, dtype=np.float64)
    seen = np.asarray(getattr(made, "classes_", np.arange(settings.classes))).astype(int)
    if scores.ndim == 1 and settings.task == "binary":
        return scores
    if scores.ndim == 1:
        scores = np.stack([-scores, scores], 1)
    if scores.shape[1] != len(seen):
        raise BadData(
            f"{type(made).__name__} gave {scores.shape[1]} scores per row for {len(seen)} classes."
        )
    lowest = min(float(scores.min(initial=0.0)), 0.0)
    full = np.full((len(scores), settings.classes), lowest)
    full[:, seen] = scores
    return full[:, 1] if settings.task == "binary" else full


def _predictions_as_scores(answers: NDArray[Any], settings: FitSettings) -> NDArray[Any]:
    """Predictions as scores: 1 for the predicted class and 0 for the others."""
    values = np.asarray(answers, dtype=np.float64)
    if settings.task == "binary":
        return values if values.ndim == 1 else values[:, -1]
    return values if values.ndim == 2 else np.eye(settings.classes)[values.astype(int)]


def _n_parameters(made: Any) -> int:
    """The number of fitted parameters: nodes of trees, or sizes of arrays."""
    if hasattr(made, "steps"):
        return sum(_n_parameters(step) for _, step in made.steps)
    if hasattr(made, "estimators_"):
        return sum(_n_parameters(each) for each in np.ravel(made.estimators_))
    if hasattr(made, "tree_"):
        return int(made.tree_.node_count)
    if hasattr(made, "coef_"):
        return int(np.size(made.coef_) + np.size(getattr(made, "intercept_", 0)))
    kept = [v for k, v in vars(made).items() if k.endswith("_") or k == "_fit_X"]
    return sum(v.size for v in kept if isinstance(v, np.ndarray) and v.dtype.kind == "f")
