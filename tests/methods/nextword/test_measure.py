"""What pieces measure, against independent calculations on the toy model."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix
from sklearn.preprocessing import StandardScaler

from cutaway.methods.nextword import measure
from cutaway.methods.nextword.grid import NextwordGrid
from cutaway.methods.nextword.piece import NextwordPiece
from cutaway.methods.nextword.spec import NextwordSpec
from cutaway.methods.nextword.task import nextword_tasks
from tests.methods.nextword.toys import PROMPT, QUIET, TEXTS, WORDS


@pytest.fixture(scope="module")
def grid(toy) -> NextwordGrid:
    spec = NextwordSpec(
        model=["m"], data=["d"], prompt_text=PROMPT, repeats=2, features="all", tokens=3, **WORDS
    )
    return NextwordGrid(spec, toy, nextword_tasks(spec, {"d": TEXTS})[0], QUIET)


def piece(kind: str) -> NextwordPiece:
    return NextwordPiece(kind, PROMPT)


def test_a_feature_score_is_the_accuracy_of_the_refitted_classifier(grid) -> None:
    scores, details, _ = measure.measure_features(grid, piece("f"))["f"]
    x, y = grid.features(PROMPT).f.double().numpy(), grid.task.labels
    for split, score in zip(grid.splits, scores, strict=True):
        scaler = StandardScaler().fit(x[split.train])
        model = LogisticRegression(C=score.metrics["c"], tol=1e-8, max_iter=5000)
        model.fit(scaler.transform(x[split.train]), y[split.train])
        expected = model.score(scaler.transform(x[split.test]), y[split.test])
        assert score.metrics["accuracy"] == pytest.approx(expected, abs=1 / len(split.test))
        assert (score.n_train, score.n_test) == (len(split.train), len(split.test))
    assert [d["figure"] for d in details] == ["confusion"]


def test_confusions_are_counts_of_the_first_test_split(grid) -> None:
    scores, details, _ = measure.measure_features(grid, piece("classwords"))["classwords"]
    counts = np.array(details[0]["counts"])
    test = grid.splits[0].test
    assert counts.sum() == len(test)
    assert counts.sum(1).tolist() == np.bincount(grid.task.labels[test]).tolist()
    assert counts.trace() / counts.sum() == pytest.approx(scores[0].metrics["accuracy"])


def test_tokens_of_word_features_have_examples_of_their_class(grid) -> None:
    _, details, _ = measure.measure_features(grid, piece("classwords"))["classwords"]
    tokens = [d for d in details if d["figure"] == "tokens"]
    assert {d["label"]: d["token"].strip() for d in tokens} == {"sad": "hate", "happy": "love"}
    happy = {TEXTS.texts[i] for i in range(len(TEXTS)) if TEXTS.labels[i] == 1}
    for detail in tokens:
        assert detail["effect"] > 0
        assert all((text in happy) == (detail["label"] == "happy") for text in detail["examples"])


def test_the_full_p_has_top_tokens_and_reports_convergence(grid) -> None:
    scores, details, _ = measure.measure_full_p(grid, piece("p"))["p"]
    assert all(score.metrics["converged"] == 1.0 for score in scores)
    tokens = [d for d in details if d["figure"] == "tokens"]
    assert len(tokens) == 6, "three for each class"


def test_zero_shot_predicts_the_class_of_the_most_likely_word(grid) -> None:
    found = measure.measure_zeroshot(grid, piece("zeroshot"))
    assert set(found) == {"zeroshot", "zeroshot_calibrated"}
    features, tokens = grid.features(PROMPT), grid.word_tokens["zeroshot"].tokens
    p = torch.softmax(features.head(features.f), dim=1)
    sums = torch.stack([p[:, list(tokens[w])].sum(1) for w in ("hate", "love")], dim=1)
    predicted = sums.argmax(1).numpy()
    scores, (confusion, calibration), _ = found["zeroshot"]
    for split, score in zip(grid.splits, scores, strict=True):
        expected = (predicted == grid.task.labels)[split.test].mean()
        assert score.metrics["accuracy"] == pytest.approx(expected)
    test = grid.splits[0].test
    expected = confusion_matrix(grid.task.labels[test], predicted[test], labels=[0, 1])
    assert confusion["counts"] == expected.tolist()
    assert sum(calibration["count"]) == len(test) and 0 <= calibration["ece"] <= 1


def test_baselines_are_measured_on_the_same_test_rows(grid) -> None:
    for kind in grid.spec.baselines:
        scores, details, _ = measure.measure_baseline(grid, NextwordPiece(kind, ""))[kind]
        assert [s.n_test for s in scores] == [len(s.test) for s in grid.splits] and not details
    majority = measure.measure_baseline(grid, NextwordPiece("majority", ""))["majority"][0]
    for split, score in zip(grid.splits, majority, strict=True):
        top = np.bincount(grid.task.labels[split.train]).argmax()
        expected = (grid.task.labels[split.test] == top).mean()
        assert score.metrics["accuracy"] == pytest.approx(expected)


def test_diagnoses_are_r2_of_the_first_split(grid) -> None:
    found = measure.measure_linearity(grid, piece("diagnose"))
    (phi_p,), *_ = found["phi_p"]
    (logz,), *_ = found["logz"]
    assert 0.5 < phi_p.metrics["r2_from_f"] <= 1
    assert set(logz.metrics) == {"r2_linear", "r2_quadratic", "directions"}
    assert logz.metrics["directions"] >= 1
