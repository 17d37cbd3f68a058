"""scikit-learn estimators as probes."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from cutaway.core.errors import BadData, BadSpec
from cutaway.methods.probe.maths.fitted import FitSettings
from cutaway.methods.probe.maths.sklearn_bridge import clone_factory, sklearn_fit

RNG = np.random.default_rng(0)
X = torch.from_numpy(RNG.normal(size=(120, 5)))
Y = torch.from_numpy(np.arange(120) % 3)


def fit(estimator, settings, x=X, y=Y):
    return sklearn_fit(clone_factory(estimator))(x, y, x[:0], y[:0], settings)


@pytest.mark.parametrize(
    ("estimator", "link"),
    [(LogisticRegression(), "margin"), (KNeighborsClassifier(), "probability")],
)
def test_scores_come_from_the_best_function_the_estimator_has(estimator, link):
    probe = fit(estimator, FitSettings("multiclass", 3))
    plain = estimator.fit(X.numpy(), Y.numpy())
    name = "decision_function" if link == "margin" else "predict_proba"
    assert probe.link == link
    assert probe.scores(X).numpy() == pytest.approx(getattr(plain, name)(X.numpy()))
    assert probe.probabilities(X, probe.scores(X)).numpy() == pytest.approx(
        plain.predict_proba(X.numpy())
    )


def test_an_estimator_without_probabilities_has_none():
    probe = fit(LinearSVC(), FitSettings("binary", 2), y=Y % 2)
    assert probe.probabilities(X, probe.scores(X)) is None


def test_the_users_estimator_is_not_fitted_itself_and_gets_the_seed():
    estimator = RandomForestClassifier(5)
    first, second = (fit(estimator, FitSettings("multiclass", 3, seed=7)) for _ in range(2))
    assert not hasattr(estimator, "estimators_")
    assert torch.equal(first.scores(X), second.scores(X))


def test_a_regressor_predicts_classes_by_one_column_each():
    probe = fit(LinearRegression(), FitSettings("multiclass", 3))
    expected = LinearRegression().fit(X.numpy(), np.eye(3)[Y]).predict(X.numpy())
    assert probe.scores(X).numpy() == pytest.approx(expected)


def test_a_classifier_is_refused_for_regression():
    with pytest.raises(BadSpec, match="is a classifier, and the targets are numbers"):
        fit(LogisticRegression(), FitSettings("regression", 1), y=Y.double())


def test_a_class_without_training_rows_scores_lowest():
    some = (Y != 1).nonzero()[:, 0]
    probe = fit(KNeighborsClassifier(), FitSettings("multiclass", 3), X[some], Y[some])
    assert (probe.scores(X)[:, 1] == 0).all()


class Mean:
    """An estimator with fit and predict only."""

    def fit(self, x, y):
        self.classes = y
        return self

    def predict(self, x):
        return np.zeros(len(x), dtype=int)


def test_predicted_classes_become_scores_of_one_and_zero():
    scores = fit(Mean(), FitSettings("multiclass", 3)).scores(X)
    assert torch.equal(scores, torch.tensor([[1.0, 0.0, 0.0]]).double().expand(120, 3))


def test_parameters_are_counted():
    tree = fit(DecisionTreeClassifier(max_depth=1), FitSettings("multiclass", 3))
    assert tree.parameters == 3
    assert fit(LogisticRegression(), FitSettings("multiclass", 3)).parameters == 3 * 5 + 3


class Broken:
    """An estimator whose answers have something wrong."""

    def __init__(self, answers):
        self.answers = answers

    def fit(self, x, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, x):
        return np.resize(np.asarray(self.answers, dtype=float), (len(x), len(self.answers)))


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ((0.5, np.nan), "Broken gave scores that are no numbers for 120 of 120 rows."),
        ((0.5, np.inf), "Broken gave scores that are no numbers for 120 of 120 rows."),
        ((0.2, 0.3, 0.5), "Broken gave 3 scores per row for 2 classes."),
    ],
)
def test_scores_that_are_no_numbers_or_of_other_classes_are_refused(answers, message):
    probe = fit(Broken(answers), FitSettings("binary", 2), y=Y % 2)
    with pytest.raises(BadData, match=message):
        probe.scores(X)
