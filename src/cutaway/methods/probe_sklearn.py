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
from cutaway.methods.probe_closed import one_per_label
from cutaway.methods.probe_fitted import Aim, Fitted, Link, Make

Factory = Callable[[Aim, int], Any]
"""(aim, number of train rows) -> a new estimator."""


def fitter(factory: Factory) -> Make:
    """How estimators that the factory makes learn; labels that go together get one each."""

    def make(x_train: Tensor, y_train: Tensor, x_val: Tensor, y_val: Tensor, aim: Aim) -> Fitted:
        x, y = _array(x_train), y_train.cpu().numpy()
        made = factory(aim, len(x))
        # A regressor knows nothing of classes: it gets one column of 0 and 1 for each.
        several = aim.task == "multiclass" and is_regressor(made)
        made.fit(x, np.eye(aim.classes)[y] if several else y)
        return _fitted(made, aim)

    return one_per_label(make)


def copied(estimator: Any) -> Factory:
    """A fresh copy of a user's estimator for every fit, seeded where it leaves the seed open."""

    def factory(aim: Aim, n: int) -> Any:
        if aim.task == "regression" and is_classifier(estimator):
            raise BadSpec(
                f"{type(estimator).__name__} is a classifier, and the targets are numbers. Give a "
                "regressor, or round the targets to classes (--as classification)."
            )
        made = _copy(estimator)
        if hasattr(made, "get_params") and made.get_params().get("random_state", 0) is None:
            made.set_params(random_state=aim.seed)
        return made

    return factory


def _copy(estimator: Any) -> Any:
    if hasattr(estimator, "get_params"):
        return clone(estimator)
    return deepcopy(estimator)


def _array(x: Tensor) -> NDArray[Any]:
    return (x if x.dtype == torch.float64 else x.float()).cpu().numpy()


def _fitted(made: Any, aim: Aim) -> Fitted:
    read, link = _reader(made, aim)

    def score(x: Tensor) -> Tensor:
        return torch.from_numpy(np.asarray(read(_array(x)), dtype=np.float64))

    def chance(x: Tensor) -> Tensor:
        return torch.from_numpy(_columns(made.predict_proba(_array(x)), made, aim))

    known = aim.task != "regression" and hasattr(made, "predict_proba")
    notes = {"estimator": str(made)}
    return Fitted(score, link, _size(made), notes, chance=chance if known else None)


def _reader(made: Any, aim: Aim) -> tuple[Callable[[NDArray[Any]], NDArray[Any]], Link]:
    """How to get scores from a fitted estimator: the best it offers."""
    if aim.task == "regression":
        return lambda x: np.ravel(made.predict(x)), "value"
    if hasattr(made, "decision_function"):
        return lambda x: _columns(made.decision_function(x), made, aim), "margin"
    if hasattr(made, "predict_proba"):
        return lambda x: _columns(made.predict_proba(x), made, aim), "probability"
    if hasattr(made, "predict"):
        return lambda x: _said(made.predict(x), aim), "margin"
    return lambda x: _said(made.transform(x), aim), "margin"


def _columns(scores: NDArray[Any], made: Any, aim: Aim) -> NDArray[Any]:
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


def _said(answers: NDArray[Any], aim: Aim) -> NDArray[Any]:
    """Plain answers as scores: class numbers become 1 for the class said and 0 for the others."""
    values = np.asarray(answers, dtype=np.float64)
    if aim.task == "binary":
        return values if values.ndim == 1 else values[:, -1]
    return values if values.ndim == 2 else np.eye(aim.classes)[values.astype(int)]


def _size(made: Any) -> int:
    """How many numbers the fitted estimator holds: nodes of trees, or its arrays."""
    if hasattr(made, "steps"):
        return sum(_size(step) for _, step in made.steps)
    if hasattr(made, "estimators_"):
        return sum(_size(each) for each in np.ravel(made.estimators_))
    if hasattr(made, "tree_"):
        return int(made.tree_.node_count)
    if hasattr(made, "coef_"):
        return int(np.size(made.coef_) + np.size(getattr(made, "intercept_", 0)))
    kept = [v for k, v in vars(made).items() if k.endswith("_") or k == "_fit_X"]
    return sum(v.size for v in kept if isinstance(v, np.ndarray) and v.dtype.kind == "f")
