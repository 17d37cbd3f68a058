"""Any estimator with scikit-learn's `fit` and `predict`, as a probe. The object itself is kept as
it came: every fit works on a copy."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier, is_regressor
from torch import Tensor

from cutaway.core.errors import BadSpec
from cutaway.methods.probe.maths.closed_form import binary_relevance
from cutaway.methods.probe.maths.fitted import FitFunction, FitSettings, FittedProbe, Link

EstimatorFactory = Callable[[FitSettings, int], Any]
"""(aim, number of train rows) -> a new estimator."""


def sklearn_fit(factory: EstimatorFactory) -> FitFunction:
    """How estimators that the factory makes learn; labels that go together get one each."""

    def make(
        x_train: Tensor, y_train: Tensor, x_val: Tensor, y_val: Tensor, aim: FitSettings
    ) -> FittedProbe:
        x, y = _to_numpy(x_train), y_train.cpu().numpy()
        made = factory(aim, len(x))
        # A regressor knows nothing of classes: it gets one column of 0 and 1 for each.
        several = aim.task == "multiclass" and is_regressor(made)
        made.fit(x, np.eye(aim.classes)[y] if several else y)
        return _as_fitted_probe(made, aim)

    return binary_relevance(make)


def clone_factory(estimator: Any) -> EstimatorFactory:
    """A fresh copy of a user's estimator for every fit, seeded where it leaves the seed open."""

    def factory(aim: FitSettings, n: int) -> Any:
        if aim.task == "regression" and is_classifier(estimator):
            raise BadSpec(
                f"{type(estimator).__name__} is a classifier, and the targets are numbers. Give a "
                "regressor, or round the targets to classes (--as classification)."
            )
        made = _clone_estimator(estimator)
        if hasattr(made, "get_params") and made.get_params().get("random_state", 0) is None:
            made.set_params(random_state=aim.seed)
        return made

    return factory


def _clone_estimator(estimator: Any) -> Any:
    if hasattr(estimator, "get_params"):
        return clone(estimator)
    return deepcopy(estimator)


def _to_numpy(x: Tensor) -> NDArray[Any]:
    return (x if x.dtype == torch.float64 else x.float()).cpu().numpy()


def _as_fitted_probe(made: Any, aim: FitSettings) -> FittedProbe:
    read, link = _score_function(made, aim)

    def score(x: Tensor) -> Tensor:
        return torch.from_numpy(np.asarray(read(_to_numpy(x)), dtype=np.float64))

    def chance(x: Tensor) -> Tensor:
        return torch.from_numpy(_align_columns(made.predict_proba(_to_numpy(x)), made, aim))

    known = aim.task != "regression" and hasattr(made, "predict_proba")
    notes = {"estimator": str(made)}
    return FittedProbe(score, link, _n_parameters(made), notes, chance=chance if known else None)


def _score_function(
    made: Any, aim: FitSettings
) -> tuple[Callable[[NDArray[Any]], NDArray[Any]], Link]:
    """How to get scores from a fitted estimator: the best it offers."""
    if aim.task == "regression":
        return lambda x: np.ravel(made.predict(x)), "value"
    if hasattr(made, "decision_function"):
        return lambda x: _align_columns(made.decision_function(x), made, aim), "margin"
    if hasattr(made, "predict_proba"):
        return lambda x: _align_columns(made.predict_proba(x), made, aim), "probability"
    if hasattr(made, "predict"):
        return lambda x: _predictions_as_scores(made.predict(x), aim), "margin"
    return lambda x: _predictions_as_scores(made.transform(x), aim), "margin"


def _align_columns(scores: NDArray[Any], made: Any, aim: FitSettings) -> NDArray[Any]:
    """Scores as (n,) for binary, (n, cls) otherwise; classes never seen score lowest."""
    scores = np.asarray(scores, dtype=np.float64)
    seen = np.asarray(getattr(made, "classes_", np.arange(aim.classes))).astype(int)
    if scores.ndim == 1 and aim.task == "binary":
        return scores
    if scores.ndim == 1:
        scores = np.stack([-scores, scores], 1)
    lowest = min(float(scores.min(initial=0.0)), 0.0)
    full = np.full((len(scores), aim.classes), lowest)
    full[:, seen] = scores
    return full[:, 1] if aim.task == "binary" else full


def _predictions_as_scores(answers: NDArray[Any], aim: FitSettings) -> NDArray[Any]:
    """Plain answers as scores: class numbers become 1 for the class said and 0 for the others."""
    values = np.asarray(answers, dtype=np.float64)
    if aim.task == "binary":
        return values if values.ndim == 1 else values[:, -1]
    return values if values.ndim == 2 else np.eye(aim.classes)[values.astype(int)]


def _n_parameters(made: Any) -> int:
    """How many numbers the fitted estimator holds: nodes of trees, or its arrays."""
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
