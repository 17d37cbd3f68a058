"""Laws of a cell: what it may look at, what it must not, and that fast and plain agree."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score

from cutaway.core.errors import BadData, BadSpec, Mismatch
from cutaway.measure.calibration import best_threshold
from cutaway.measure.intervals import corrected_t
from cutaway.measure.splits import Split, SplitPlan, split
from cutaway.methods.probe.maths.cell import (
    CLASSIFIERS,
    RaggedTokens,
    RowBlocks,
    encode_labels,
    probe_split,
    probe_splits,
)

FAST = [name for name, row in CLASSIFIERS.items() if row.streams]
METRICS = {
    "binary": {
        "accuracy",
        "balanced_accuracy",
        "f1",
        "f1_macro",
        "mcc",
        "auc",
        "ap",
        "ece",
        "accuracy_ref",
        "f1_ref",
    },
    "multiclass": {
        "accuracy",
        "balanced_accuracy",
        "f1_macro",
        "f1_micro",
        "mcc",
        "auc",
        "ap",
        "ece",
    },
    "multilabel": {"accuracy", "f1_macro", "f1_micro", "auc", "ap"},
    "regression": {"r2", "mse", "spearman", "pearson"},
}


def made(task: str, n: int = 150, d: int = 8, seed: int = 0) -> tuple[torch.Tensor, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
    x[:, 1] = 100 * x[:, 1] + 300
    z = x[:, 0] + rng.standard_normal(n)
    labels = {
        "binary": (z > 0).astype(int),
        "multiclass": np.digitize(z, [-1, 1]),
        "multilabel": np.stack([z > 0, x[:, 2] > 0, z > 1], 1).astype(int),
        "regression": z,
    }
    return torch.tensor(x, dtype=torch.float32), labels[task]


def splits_of(y: np.ndarray, task: str, repeats: int = 3) -> tuple[Split, ...]:
    return split(y, SplitPlan(repeats=repeats), task=task)


@pytest.mark.parametrize("task", METRICS)
def test_every_metric_of_the_task_and_the_sizes_are_there(task):
    x, y = made(task)
    one = splits_of(y, task)[0]
    found = probe_split(x, y, one, "ridge", task=task)
    lead = "r2_train" if task == "regression" else "accuracy_train"
    assert set(found.metrics) == METRICS[task] | {lead}
    assert (found.n_train, found.n_val, found.n_test) == (
        len(one.train),
        len(one.val),
        len(one.test),
    )
    assert len(found.scores) == len(found.decisions) == len(one.test)


@pytest.mark.parametrize(
    ("name", "task"), [(name, task) for name in FAST for task in CLASSIFIERS[name].tasks]
)
def test_all_splits_at_once_and_one_by_one_are_the_same(name, task):
    x, y = made(task)
    splits = splits_of(y, task)
    together = probe_splits(x, y, splits, name, task=task)
    for one, found in zip(splits, together, strict=True):
        alone = probe_split(x, y, one, name, task=task)
        # The logistic search stops within its tolerance, not at one bit.
        np.testing.assert_allclose(found.scores, alone.scores, rtol=1e-3, atol=2e-3)
        assert found.metrics["accuracy" if "accuracy" in found.metrics else "r2"] == pytest.approx(
            alone.metrics["accuracy" if "accuracy" in alone.metrics else "r2"], abs=1e-3
        )


@pytest.mark.parametrize("name", FAST)
def test_features_on_disk_give_what_features_in_memory_give(name, monkeypatch):
    task = "binary"
    x, y = made(task)
    splits = splits_of(y, task)
    whole = probe_splits(x, y, splits, name, task=task)
    monkeypatch.setattr("cutaway.solvers.rows.MAX_CAST_BYTES", 0)
    parts = probe_splits(RowBlocks(lambda: x.split(41), *x.shape), y, splits, name, task=task)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one.scores, other.scores, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["logistic", "lda_shrink", "nb", "centroid", "pca", "knn"])
def test_shuffled_labels_give_chance_within_its_interval(name):
    x, y = made("binary", n=400)
    y = np.random.default_rng(3).permutation(np.arange(400) % 2)
    splits = splits_of(y, "binary", repeats=8)
    found = probe_splits(x, y, splits, name, task="binary")
    span = corrected_t(
        [c.metrics["auc"] for c in found], n_train=len(splits[0].train), n_test=len(splits[0].test)
    )
    assert span.low < 0.5 < span.high


@pytest.mark.parametrize("name", ["logistic", "ridge", "lda", "nb", "linear"])
def test_nothing_learned_or_tuned_depends_on_test_labels(name):
    x, y = made("binary")
    one = splits_of(y, "binary")[0]
    wrong = y.copy()
    wrong[one.test] = 1 - wrong[one.test]
    honest, spoiled = (probe_split(x, labels, one, name, task="binary") for labels in (y, wrong))
    assert honest.thresholds == spoiled.thresholds
    np.testing.assert_array_equal(honest.decisions, spoiled.decisions)
    assert spoiled.metrics["accuracy"] == pytest.approx(1 - honest.metrics["accuracy"])


@pytest.mark.parametrize("name", ["logistic", "ridge", "lda_shrink", "nb"])
def test_nothing_learned_depends_on_test_features(name):
    x, y = made("binary")
    one = splits_of(y, "binary")[0]
    other = x.clone()
    other[one.test] = 5 * other[one.test] + 1
    honest, spoiled = (probe_split(values, y, one, name, task="binary") for values in (x, other))
    assert honest.thresholds == pytest.approx(spoiled.thresholds, abs=1e-3)
    assert honest.metrics["accuracy_train"] == pytest.approx(
        spoiled.metrics["accuracy_train"], abs=0.01
    )


class Constant:
    def fit(self, x, y):
        return self

    def predict(self, x):
        return np.full(len(x), 0.3)


def test_equal_scores_give_one_decision_for_all_never_the_labels():
    x, y = made("binary")
    for one in splits_of(y, "binary"):
        found = probe_split(x, y, one, Constant(), task="binary")
        assert len(set(found.decisions.tolist())) == 1
        # 0.3 is below 0.5, the threshold of predictions between 0 and 1.
        assert found.decisions[0] == 0 and found.thresholds == (0.5,)
        assert found.metrics["auc"] == 0.5


def test_one_rule_decides_all_and_the_references_cuts_are_kept_apart():
    x, y = made("binary", n=400)
    y = (y & (np.random.default_rng(0).random(400) < 0.4)).astype(int)
    one = splits_of(y, "binary")[0]
    found = probe_split(x, y, one, "nb", task="binary")
    right = (found.decisions == y[one.test]).mean()
    assert found.metrics["accuracy"] == pytest.approx(right)
    np.testing.assert_array_equal(found.decisions, found.scores > found.thresholds[0])
    parts = [(x[rows], torch.tensor(y[rows])) for rows in (one.train, one.val)]
    fitted = CLASSIFIERS["nb"].fit(*parts[0], *parts[1], task="binary", classes=2)
    scores = fitted.scores(x[one.val]).numpy()
    for metric, score in (("accuracy", accuracy_score), ("f1", f1_score)):
        cut = best_threshold(scores, y[one.val], metric=metric)
        said = (found.scores > cut.value).astype(int)
        assert found.metrics[f"{metric}_ref"] == pytest.approx(score(y[one.test], said))


@pytest.mark.parametrize("name", ["logistic", "lda", "ridge", "nb", "qda", "knn"])
def test_the_decisions_are_the_classifiers_own_unless_validation_rows_object(name):
    # Balanced classes, so that no threshold but the classifier's own is called for.
    x, y = made("binary", n=300)
    for one in splits_of(y, "binary"):
        found = probe_split(x, y, one, name, task="binary")
        assert found.thresholds == ((0.5,) if name == "knn" else (0.0,))


def test_decisions_aim_at_the_main_metric():
    rng = np.random.default_rng(3)
    y = (rng.random(1500) < 0.12).astype(int)
    x = torch.tensor(rng.normal(size=(1500, 4)) + 0.5 * y[:, None])
    one = splits_of(y, "binary")[0]
    plain, aimed = (
        probe_split(x, y, one, "logistic", task="binary", metric=metric)
        for metric in ("accuracy", "balanced_accuracy")
    )
    assert aimed.metrics["balanced_accuracy"] > plain.metrics["balanced_accuracy"] + 0.1
    assert plain.metrics["accuracy"] > aimed.metrics["accuracy"]
    assert aimed.metrics["auc"] == plain.metrics["auc"]


def test_validation_rows_of_one_class_leave_the_own_threshold():
    x, y = made("binary")
    ones = np.flatnonzero(y == 1)
    one = Split(0, np.concatenate([ones[10:], np.flatnonzero(y == 0)[:40]]), ones[:10],
                np.flatnonzero(y == 0)[40:])  # fmt: skip
    found = probe_split(x, y, one, "lda", task="binary")
    assert found.thresholds == (0.0,) and np.isnan(found.metrics["auc"])


class Broken:
    def fit(self, x, y):
        return self

    def decision_function(self, x):
        return np.where(np.arange(len(x)) % 7 == 0, np.nan, 1.0)

    def predict(self, x):
        return self.decision_function(x)


def test_scores_that_are_nan_are_refused_with_their_number():
    x, y = made("binary")
    with pytest.raises(BadData, match="no numbers for 22 of 150 rows"):
        probe_split(x, y, splits_of(y, "binary")[0], Broken(), task="binary")


def test_words_are_classes_too():
    x, y = made("binary")
    words = np.array(["no", "yes"])[y]
    one = splits_of(y, "binary")[0]
    assert probe_split(x, words, one, "lda", task="binary").metrics == pytest.approx(
        probe_split(x, y, one, "lda", task="binary").metrics, nan_ok=True
    )
    numbers, names = encode_labels(words, "binary", ("yes", "no"))
    assert names == ("yes", "no")
    np.testing.assert_array_equal(numbers, 1 - y)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_features_that_are_not_numbers_are_counted_and_refused(bad):
    x, y = made("binary")
    x[4, 2] = x[9, 2] = bad
    with pytest.raises(BadData, match=r"2 of 150 rows .* 1 of 8 columns"):
        probe_split(x, y, splits_of(y, "binary")[0], "lda", task="binary")


def test_what_does_not_belong_together_is_refused():
    x, y = made("binary")
    one = splits_of(y, "binary")[0]
    rows = RowBlocks(lambda: x.split(50), *x.shape)
    with pytest.raises(Mismatch, match="149 labels"):
        probe_split(x, y[:-1], one, "lda", task="binary")
    with pytest.raises(BadSpec, match="in memory"):
        probe_split(rows, y, one, "knn", task="binary")
    with pytest.raises(BadSpec, match="all tokens"):
        probe_split(x, y, one, "attention", task="binary")
    with pytest.raises(BadSpec, match="one vector per text"):
        probe_split(RaggedTokens(x, torch.arange(len(x) + 1)), y, one, "lda", task="binary")
    with pytest.raises(BadData, match="missing"):
        probe_split(x, np.where(y == 1, np.nan, 0.0), one, "lda", task="binary")
    with pytest.raises(BadData, match="'maybe' is not one of"):
        encode_labels(np.array(["yes", "maybe"]), "binary", ("no", "yes"))


@pytest.mark.parametrize("name", FAST)
def test_half_precision_features_are_read(name):
    x, y = made("binary")
    x[:, 1] /= 100
    one = splits_of(y, "binary")[0]
    half, full = (probe_split(v, y, one, name, task="binary") for v in (x.half(), x.half().float()))
    np.testing.assert_allclose(half.scores, full.scores, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", [n for n, row in CLASSIFIERS.items() if row.kind == "closed"])
def test_features_that_never_change_give_one_decision_for_all(name):
    _, y = made("binary")
    found = probe_split(
        torch.full((len(y), 5), 0.1), y, splits_of(y, "binary")[0], name, task="binary"
    )
    assert len(set(found.decisions.tolist())) == 1
    assert found.metrics["auc"] == 0.5


@pytest.mark.parametrize("name", FAST)
def test_one_row_of_each_class_is_enough_to_fit(name):
    x, y = made("binary", d=200)
    for one in split(y, SplitPlan(protocol="kshot", shots=1, repeats=2), task="binary"):
        assert np.isfinite(probe_split(x, y, one, name, task="binary").scores).all()
