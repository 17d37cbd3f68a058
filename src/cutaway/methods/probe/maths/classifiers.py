"""The CLASSIFIERS table; estimators and torch modules become rows of the same form.

A new classifier is one function and one row. `fit_split` fits one split, `fit_splits` all splits of
a matrix at once (also of matrices larger than memory); a row has one of them.
"""

import inspect
from dataclasses import dataclass
from typing import Any, Literal

import torch
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from cutaway.core.errors import BadSpec
from cutaway.core.lookup import lookup
from cutaway.core.textset import Task
from cutaway.measure.splits import Split
from cutaway.methods.probe.maths.closed_form import (
    lda,
    logistic,
    naive_bayes,
    nearest_centroid,
    pca,
    qda,
    ridge,
)
from cutaway.methods.probe.maths.fitted import (
    ALL_TASKS,
    CLASSIFICATION_TASKS,
    FitFunction,
    FitSettings,
    FitSplitsFunction,
    FittedProbe,
    binary_relevance,
    binary_relevance_splits,
)
from cutaway.methods.probe.maths.nets import AttentionProbe, glu, mlp, user_net
from cutaway.methods.probe.maths.sklearn_bridge import clone_factory, sklearn_fit
from cutaway.methods.probe.maths.train import gradient_fit

ClassifierKind = Literal["closed", "gradient", "tokens"]


@dataclass(frozen=True)
class Classifier:
    """One row of the table."""

    name: str
    text: str
    """One line of help."""
    tasks: tuple[Task, ...]
    kind: ClassifierKind
    """Solved in closed form (or by a solver), trained by gradients, or on all token vectors."""
    fit_split: FitFunction | None = None
    fit_splits: FitSplitsFunction | None = None

    @property
    def streams(self) -> bool:
        """Whether it can be fitted on features that don't fit in memory."""
        return self.fit_splits is not None

    def fit(
        self,
        x_train: Any,
        y_train: Tensor,
        x_val: Any,
        y_val: Tensor,
        *,
        task: Task,
        classes: int,
        seed: int = 0,
        balanced: bool = False,
    ) -> FittedProbe:
        """Fit on the training rows; validation rows choose C, the best epoch and the like."""
        settings = FitSettings(task, classes, seed, balanced)
        self.check(settings)
        if self.fit_split is not None:
            return self.fit_split(x_train, y_train, x_val, y_val, settings)
        assert self.fit_splits is not None, f"{self.name} has neither fit_split nor fit_splits"
        rows = torch.arange(len(x_train) + len(x_val)).numpy()
        split = Split(0, rows[: len(x_train)], rows[len(x_train) :], rows[:0])
        x, y = torch.cat([x_train, x_val]), torch.cat([y_train, y_val])
        return self.fit_splits(x, y, [split], settings)[0]

    def check(self, settings: FitSettings) -> None:
        """BadSpec if the classifier does not support the task."""
        if settings.task not in self.tasks:
            others = [name for name, row in CLASSIFIERS.items() if settings.task in row.tasks]
            raise BadSpec(
                f"Classifier {self.name!r} does not support {settings.task}, only "
                f"{', '.join(self.tasks)}. Those that do: {', '.join(others)}."
            )


def classifier(given: Any) -> Classifier:
    """The row of that name; a new row for an estimator with `fit` or a torch module."""
    if isinstance(given, Classifier):
        return given
    if isinstance(given, str):
        return lookup(CLASSIFIERS, given, kind="classifier")
    net = isinstance(given, nn.Module) or _is_module_class(given)
    if not net and hasattr(given, "fit"):
        return _from_estimator(given() if inspect.isclass(given) else given)
    if net or callable(given):
        return _from_module(given)
    raise BadSpec(
        f"A classifier is a name of the table ({', '.join(CLASSIFIERS)}), an object with fit and "
        f"predict, or a torch module (class, factory or instance); got {given!r}."
    )


def _is_module_class(given: Any) -> bool:
    return inspect.isclass(given) and issubclass(given, nn.Module)


def _from_estimator(given: Any) -> Classifier:
    if not (hasattr(given, "predict") or hasattr(given, "transform")):
        raise BadSpec(f"{given!r} has fit, but neither predict nor transform.")
    name = str(getattr(given, "name", type(given).__name__))
    text = f"{type(given).__module__}.{type(given).__qualname__}"
    return Classifier(name, text, ALL_TASKS, "closed", fit_split=sklearn_fit(clone_factory(given)))


def _from_module(given: Any) -> Classifier:
    kind = type(given) if isinstance(given, nn.Module) else given
    name = str(getattr(given, "name", getattr(kind, "__name__", "module")))
    text = f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', name)}"
    return Classifier(name, text, ALL_TASKS, "gradient", fit_split=gradient_fit(user_net(given)))


def _make_knn(settings: FitSettings, n: int) -> Any:
    count = min(15, n)
    kind = KNeighborsRegressor if settings.task == "regression" else KNeighborsClassifier
    return make_pipeline(StandardScaler(), kind(n_neighbors=count, weights="distance"))


def _make_forest(settings: FitSettings, n: int) -> Any:
    if settings.task == "regression":
        return RandomForestRegressor(100, random_state=settings.seed)
    weight = "balanced" if settings.balanced else None
    return RandomForestClassifier(100, random_state=settings.seed, class_weight=weight)


ROWS = (
    Classifier("logistic", "logistic regression, C by validation log-loss",
               CLASSIFICATION_TASKS, "closed", fit_splits=logistic),
    Classifier("ridge", "ridge regression on values or -1/1, alpha by exact leave-one-out",
               ALL_TASKS, "closed", fit_splits=ridge),
    Classifier("lda", "linear discriminant without shrinkage",
               CLASSIFICATION_TASKS, "closed", fit_splits=lda(None)),
    Classifier("lda_shrink", "linear discriminant with Ledoit-Wolf shrinkage",
               CLASSIFICATION_TASKS, "closed", fit_splits=lda("auto")),
    Classifier("qda", "one Gaussian per class, shrunk covariances",
               CLASSIFICATION_TASKS, "closed", fit_split=binary_relevance(qda)),
    Classifier("nb", "Gaussian naive Bayes",
               CLASSIFICATION_TASKS, "closed", fit_splits=binary_relevance_splits(naive_bayes)),
    Classifier("centroid", "the nearest class mean", CLASSIFICATION_TASKS, "closed",
               fit_splits=binary_relevance_splits(nearest_centroid)),
    Classifier("pca", "projection on the first principal axis",
               ALL_TASKS, "closed", fit_split=binary_relevance(pca)),
    Classifier("knn", "15 nearest neighbours",
               ALL_TASKS, "closed", fit_split=sklearn_fit(_make_knn)),
    Classifier("forest", "random forest of 100 trees",
               ALL_TASKS, "closed", fit_split=sklearn_fit(_make_forest)),
    Classifier("linear", "one linear layer, trained",
               ALL_TASKS, "gradient", fit_split=gradient_fit(mlp(1))),
    Classifier("mlp2", "two layers, trained",
               ALL_TASKS, "gradient", fit_split=gradient_fit(mlp(2))),
    Classifier("mlp3", "three layers, trained",
               ALL_TASKS, "gradient", fit_split=gradient_fit(mlp(3))),
    Classifier("glu", "gated linear unit, trained",
               ALL_TASKS, "gradient", fit_split=gradient_fit(glu(nn.Sigmoid))),
    Classifier("glu_linear", "product of two linear maps, trained",
               ALL_TASKS, "gradient", fit_split=gradient_fit(glu(nn.Identity))),
    Classifier("attention", "a learned query over all token vectors, trained",
               ALL_TASKS, "tokens", fit_split=gradient_fit(AttentionProbe)),
)  # fmt: skip

CLASSIFIERS: dict[str, Classifier] = {row.name: row for row in ROWS}
