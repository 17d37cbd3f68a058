"""Cross-validated logistic regression: the choice of C, folds, probabilities."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

from cutaway.core.errors import BadData
from cutaway.methods.nextword.maths.classify import (
    C_GRID,
    ClassifierSettings,
    LinearClassifier,
    c_grid_for,
    fit_logistic_cv,
    stratified_folds,
)
from cutaway.solvers.logistic import logistic_path
from tests.methods.nextword.maths.heads import N, labels


@pytest.mark.parametrize("multinomial", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_sum_to_1_and_predict_held_out_rows(classes, multinomial, f) -> None:
    y = labels(f, classes)
    settings = ClassifierSettings(classes, multinomial=multinomial)
    found = fit_logistic_cv(f, y, [np.arange(180)], settings)[0]
    p = found.probabilities(found.logits(f))
    assert p.shape == (N, classes)
    torch.testing.assert_close(p.sum(1), torch.ones(N, dtype=torch.float64))
    assert (p.argmax(1).numpy() == y)[180:].mean() > 0.6


def test_c_is_the_one_that_scikit_learn_finds_on_the_same_folds(f) -> None:
    y, rows = labels(f, 2), np.arange(160)
    folds = stratified_folds(y, rows, 5, seed=0, split=0)
    means = []
    for c in C_GRID:
        losses = []
        for held_out in folds:
            learn = np.setdiff1d(rows, held_out)
            scaler = StandardScaler().fit(f[learn].numpy())
            model = LogisticRegression(C=c, tol=1e-8, max_iter=5000)
            model.fit(scaler.transform(f[learn].numpy()), y[learn])
            p = model.predict_proba(scaler.transform(f[held_out].numpy()))
            losses.append(log_loss(y[held_out], p))
        means.append(np.mean(losses))
    found = fit_logistic_cv(f, y, [rows], ClassifierSettings(2, tol=1e-6))[0]
    assert found.c == C_GRID[int(np.argmin(means))]


def test_the_refit_uses_all_training_rows(f) -> None:
    y, rows = labels(f, 2), np.arange(200)
    found = fit_logistic_cv(f, y, [rows], ClassifierSettings(2, tol=1e-9, max_iter=5000))[0]
    scaler = StandardScaler().fit(f[rows].numpy())
    model = LogisticRegression(C=found.c, tol=1e-10, max_iter=20_000)
    model.fit(scaler.transform(f[rows].numpy()), y[rows])
    expected = model.decision_function(scaler.transform(f.numpy()))
    np.testing.assert_allclose(found.logits(f)[:, 0].numpy(), expected, rtol=1e-4, atol=1e-5)
    assert found.converged and found.gradient <= 1e-9


def test_one_vs_rest_fits_each_class_against_the_others(f) -> None:
    y, rows = labels(f, 3), np.arange(200)
    settings = ClassifierSettings(3, standardise=False, tol=1e-9, max_iter=5000)
    found = fit_logistic_cv(f, y, [rows], settings)[0]
    for label in range(3):
        model = LogisticRegression(C=found.c, tol=1e-10, max_iter=20_000)
        model.fit(f[rows].numpy(), (y[rows] == label).astype(int))
        expected = model.decision_function(f.numpy())
        np.testing.assert_allclose(
            found.logits(f)[:, label].numpy(), expected, rtol=1e-4, atol=1e-5
        )


def test_each_split_gets_its_own_classifier_as_if_it_were_alone(f) -> None:
    y, trains = labels(f, 2), [np.arange(120), np.arange(60, 200)]
    settings = ClassifierSettings(2, tol=1e-9, max_iter=5000)
    together = fit_logistic_cv(f, y, trains, settings)
    alone = fit_logistic_cv(f, y, trains[:1], settings)[0]
    assert together[0].c == alone.c
    torch.testing.assert_close(together[0].weights, alone.weights, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(together[0].weights, together[1].weights)


@pytest.mark.parametrize("classes", [2, 3])
def test_held_out_logits_come_from_folds_that_never_saw_the_row(f, classes) -> None:
    y, trains = labels(f, classes), [np.arange(150), np.arange(40, 200)[::-1].copy()]
    settings = ClassifierSettings(classes, folds=4, tol=1e-8, max_iter=5000)
    for split, found in enumerate(fit_logistic_cv(f, y, trains, settings)):
        rows = trains[split]
        for fold in stratified_folds(y, rows, 4, seed=0, split=split):
            targets = torch.nn.functional.one_hot(torch.from_numpy(y)) if classes > 2 else y
            learn = torch.zeros(1, len(y), dtype=torch.bool)
            learn[0, np.setdiff1d(rows, fold)] = True
            path = logistic_path(
                f, torch.as_tensor(targets), strengths=[found.c], folds=learn, classes=2,
                standardise=True, tol=1e-8, max_iter=5000,
            )  # fmt: skip
            expected = path.logits(f[fold])[0, 0]
            places = [rows.tolist().index(row) for row in fold]
            torch.testing.assert_close(found.held_out[places], expected, rtol=1e-3, atol=1e-4)


def test_no_c_is_chosen_because_its_search_ended_early() -> None:
    x = torch.randn(60, 300, generator=torch.Generator().manual_seed(3))
    y = (x[:, :3].sum(1) + 0.5 > 0).long().numpy()
    rows = np.arange(40)
    wanted = fit_logistic_cv(x, y, [rows], ClassifierSettings(2, tol=1e-9, max_iter=5000))[0].c
    assert fit_logistic_cv(x, y, [rows], ClassifierSettings(2))[0].c == wanted
    assert fit_logistic_cv(x, y, [rows], ClassifierSettings(2, gap=None))[0].c > wanted


def test_shuffled_labels_are_at_chance(f) -> None:
    y = np.random.default_rng(0).permutation(labels(f, 2))
    found = fit_logistic_cv(f, y, [np.arange(160)], ClassifierSettings(2))[0]
    assert (found.probabilities(found.logits(f)).argmax(1).numpy() == y)[160:].mean() < 0.65


def test_one_vs_rest_probabilities_stay_finite_when_no_class_is_likely() -> None:
    one = LinearClassifier(torch.zeros(3, 2), torch.zeros(3), 1.0, True, 0.0)
    p = one.probabilities(torch.full((1, 3), -2000.0, dtype=torch.float64))
    torch.testing.assert_close(p, torch.full((1, 3), 1 / 3, dtype=torch.float64))


def test_folds_hold_every_training_row_once_with_all_classes(f) -> None:
    y, rows = labels(f, 3), np.arange(10, 130)
    folds = stratified_folds(y, rows, 5, seed=0, split=0)
    assert sorted(np.concatenate(folds).tolist()) == rows.tolist()
    counts = np.array([np.bincount(y[fold], minlength=3) for fold in folds])
    assert (counts.max(0) - counts.min(0)).max() <= 1
    with pytest.raises(BadData, match="fewer --folds"):
        stratified_folds(np.array([0, 0, 0, 1]), np.arange(4), 3, seed=0, split=0)
    with pytest.raises(BadData, match="needs two classes"):
        stratified_folds(np.zeros(9, dtype=int), np.arange(9), 3, seed=0, split=0)


def test_folds_depend_on_the_seed_and_on_the_split(f) -> None:
    y, rows = labels(f, 2), np.arange(100)

    def first(seed: int, split: int) -> list[int]:
        return stratified_folds(y, rows, 5, seed=seed, split=split)[0].tolist()

    assert first(0, 0) == first(0, 0)
    assert len({tuple(first(seed, split)) for seed in (0, 1) for split in (0, 1)}) == 4


def test_the_values_of_c_are_the_references() -> None:
    assert c_grid_for(9_999)[0] == 1e-6 and c_grid_for(9_999)[-1] == 1e3
    assert c_grid_for(10_000)[0] == 1e-3 and c_grid_for(10_000)[-1] == 1e2
