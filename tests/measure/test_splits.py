"""Laws of every protocol, and the requests each refuses."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cutaway.core.errors import BadData, BadSpec, UnknownName
from cutaway.measure.splits import PROTOCOLS, SplitPlan, split

PLANS = {
    "repeats": SplitPlan("repeats", repeats=3),
    "kfold": SplitPlan("kfold", folds=4),
    "fixed": SplitPlan("fixed", repeats=3),
    "kshot": SplitPlan("kshot", shots=4, repeats=3),
    "curve": SplitPlan("curve", sizes=(10, 20, 40), repeats=3),
}
TASKS = ("binary", "multiclass", "multilabel", "regression")
every_protocol = pytest.mark.parametrize("name", PROTOCOLS)


def rows(n=120, seed=0, task="binary"):
    """Labels of a task and the part of each row."""
    rng = np.random.default_rng(seed)
    labels = {
        "binary": lambda: (np.arange(n) % 3 == 0).astype(int),
        "multiclass": lambda: np.arange(n) % 4,
        "multilabel": lambda: rng.integers(0, 2, (n, 3)),
        "regression": lambda: rng.random(n),
    }[task]()
    parts = np.array(["test" if i % 5 == 1 else "train" for i in range(n)])
    return labels, parts


def made(name, task="binary", **changes):
    labels, parts = rows(task=task)
    plan = SplitPlan(**{**PLANS[name].__dict__, **changes})
    return split(labels, plan, task=task, parts=parts)


def as_lists(splits):
    return [(s.repeat, s.train.tolist(), s.val.tolist(), s.test.tolist(), s.size) for s in splits]


def test_every_protocol_is_under_test():
    assert set(PLANS) == set(PROTOCOLS)


@pytest.mark.parametrize(
    ("name", "task"),
    # kshot counts rows per class, and the other tasks have no classes to count.
    [(n, t) for n in PROTOCOLS for t in TASKS if n != "kshot" or t in ("binary", "multiclass")],
)
def test_no_row_is_in_two_parts_and_no_part_is_empty(name, task):
    for one in made(name, task):
        together = np.concatenate([one.train, one.val, one.test])
        assert len(np.unique(together)) == len(together)
        assert min(len(one.train), len(one.val), len(one.test)) > 0
        assert together.min() >= 0
        assert together.max() < 120


@pytest.mark.parametrize("name", ["repeats", "kfold", "fixed"])
@pytest.mark.parametrize("task", TASKS)
def test_every_row_is_used(name, task):
    for one in made(name, task):
        assert sorted(np.concatenate([one.train, one.val, one.test]).tolist()) == list(range(120))


@every_protocol
def test_the_same_seed_gives_the_same_rows_and_another_seed_others(name):
    assert as_lists(made(name)) == as_lists(made(name))
    assert as_lists(made(name)) != as_lists(made(name, seed=1))


@pytest.mark.parametrize("name", ["repeats", "fixed", "kshot", "curve"])
def test_more_repeats_leave_the_first_ones_as_they_were(name):
    few, many = as_lists(made(name)), as_lists(made(name, repeats=7))
    assert many[: len(few)] == few
    assert len({str(train) for _, train, *_ in many}) == len(many)


@every_protocol
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint8, bool, float])
def test_the_type_of_the_labels_changes_nothing(name, dtype):
    labels, parts = rows()
    changed = split(labels.astype(dtype), PLANS[name], task="binary", parts=parts)
    assert as_lists(changed) == as_lists(made(name))


@given(
    counts=st.lists(st.integers(4, 50), min_size=2, max_size=6),
    seed=st.integers(0, 999),
)
@settings(max_examples=30, deadline=None)
def test_repeats_are_stratified_within_one_row(counts, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    plan = SplitPlan(repeats=2, seed=seed, fractions=(0.6, 0.2, 0.2))
    for one in split(labels, plan, task="multiclass"):
        for part, share in ((one.train, 0.6), (one.val, 0.2), (one.test, 0.2)):
            found = np.bincount(labels[part], minlength=len(counts))
            assert (np.abs(found - share * np.array(counts)) < 1 + 1e-9).all()


@given(
    counts=st.lists(st.integers(3, 30), min_size=2, max_size=5),
    folds=st.integers(2, 6),
    seed=st.integers(0, 999),
)
@settings(max_examples=30, deadline=None)
def test_kfold_tests_each_row_once_in_folds_that_differ_by_one(counts, folds, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    assume(sum(counts) >= 24)  # fewer leave no validation row
    splits = split(labels, SplitPlan("kfold", folds=folds, seed=seed), task="multiclass")
    tested = np.concatenate([one.test for one in splits])
    assert sorted(tested.tolist()) == list(range(len(labels)))
    by_class = np.array([np.bincount(labels[s.test], minlength=len(counts)) for s in splits])
    assert (np.ptp(by_class, axis=0) <= 1).all()
    assert np.ptp(by_class.sum(axis=1)) <= 1
    for one in splits:
        assert set(labels[one.train]) == set(range(len(counts)))


def test_70_10_20_is_cut_exactly_and_pinned():
    labels = np.repeat([0, 1], [60, 40])
    first = split(labels, SplitPlan(repeats=1), task="binary")[0]
    assert [len(first.train), len(first.val), len(first.test)] == [70, 10, 20]
    assert labels[first.test].sum() == 8
    assert first.val.tolist() == [2, 26, 30, 41, 53, 58, 67, 81, 84, 88]


def test_regression_parts_have_the_labels_of_the_whole():
    labels = np.random.default_rng(0).random(1000)
    for one in split(labels, SplitPlan(repeats=3), task="regression"):
        assert labels[one.test].mean() == pytest.approx(labels.mean(), abs=0.01)


def test_fixed_parts_are_taken_as_they_are_and_one_dev_part_gives_one_split():
    labels, parts = np.repeat([0, 1], 6), np.array(["train", "dev", "test"] * 4)
    only = split(labels, SplitPlan("fixed", repeats=5), task="binary", parts=parts)
    assert len(only) == 1
    assert only[0].train.tolist() == [0, 3, 6, 9]
    assert only[0].val.tolist() == [1, 4, 7, 10]
    assert only[0].test.tolist() == [2, 5, 8, 11]


@pytest.mark.parametrize("part", ["train", "dev", "test"])
def test_a_fixed_part_of_one_class_is_refused_by_its_name_and_label(part):
    parts = np.repeat(["train", "dev", "test"], 4)
    labels = np.where(parts == part, 1, np.tile([0, 1], 6))
    with pytest.raises(BadData, match=f"All 4 rows of the part '{part}' have the label 'good'"):
        split(labels, SplitPlan("fixed"), task="binary", parts=parts, classes=("bad", "good"))


def test_kshot_refuses_a_test_part_of_one_class():
    labels, parts = np.array([0, 1] * 10 + [1] * 4), np.array(["train"] * 20 + ["test"] * 4)
    with pytest.raises(BadData, match="All 4 rows of the part 'test' have the label '1'"):
        split(labels, SplitPlan("kshot", shots=2), task="binary", parts=parts)


def test_fixed_without_dev_varies_the_validation_rows_only():
    _, parts = rows()
    splits = made("fixed")
    assert len({str(s.val) for s in splits}) == len(splits)
    for one in splits:
        assert one.test.tolist() == np.flatnonzero(parts == "test").tolist()
        assert len(one.val) == pytest.approx(len(one.train) / 7, abs=1)


@pytest.mark.parametrize("apart", [True, False])
def test_kshot_has_k_rows_of_each_class_to_learn_from_and_k_to_tune_on(apart):
    labels, parts = rows(task="multiclass")
    plan = SplitPlan("kshot", shots=5, repeats=2)
    for one in split(labels, plan, task="multiclass", parts=parts if apart else None):
        assert np.bincount(labels[one.train]).tolist() == [5] * 4
        assert np.bincount(labels[one.val]).tolist() == [5] * 4
        assert one.size == len(one.train) == 20
        rest = np.flatnonzero(parts == "test") if apart else np.arange(120)
        assert set(one.test) == set(rest) - set(one.train) - set(one.val)


def test_curve_thins_the_train_part_of_repeats_in_nested_steps():
    labels, _ = rows()
    whole = split(labels, SplitPlan(repeats=2), task="binary")
    full = len(whole[0].train)
    steps = split(labels, SplitPlan("curve", repeats=2, sizes=(full, 8, 30)), task="binary")
    assert [(s.repeat, s.size) for s in steps] == [(r, n) for r in (0, 1) for n in (8, 30, full)]
    for one in steps:
        parent = whole[one.repeat]
        assert len(one.train) == one.size
        assert set(one.train) <= set(parent.train)
        assert one.val.tolist() == parent.val.tolist()
        assert one.test.tolist() == parent.test.tolist()
        assert labels[one.train].mean() == pytest.approx(1 / 3, abs=1.5 / one.size)
    for small, large in ((steps[0], steps[1]), (steps[1], steps[2])):
        assert set(small.train) <= set(large.train)


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ({"protocol": "kfolds"}, UnknownName, "Did you mean 'kfold'"),
        ({"repeats": 0}, BadSpec, "repeats must be at least 1, got 0"),
        ({"folds": 1}, BadSpec, "folds must be at least 2, got 1"),
        ({"shots": 0}, BadSpec, "shots must be at least 1"),
        ({"seed": -1}, BadSpec, "seed must be at least 0"),
        ({"fractions": (0.7, 0.3, 0.0)}, BadSpec, "three positive numbers"),
        ({"fractions": (0.7, 0.3, 0.2)}, BadSpec, "add up to 1"),
        ({"fractions": (0.7, 0.3)}, BadSpec, "three positive numbers"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_at_once(values, error, words):
    with pytest.raises(error, match=words):
        SplitPlan(**values)


LONE = np.array([0] * 20 + [1] * 20 + [2])


@pytest.mark.parametrize(
    ("plan", "labels", "task", "error", "words"),
    [
        (SplitPlan(), [1], "binary", BadData, "1 labelled rows can't be split"),
        (SplitPlan(), [0] * 9, "binary", BadData, "Every row has the label 'no'"),
        (SplitPlan(), LONE, "multiclass", BadData, "Class 'maybe' has 1 row, and a class needs 2"),
        (SplitPlan("kfold"), LONE, "multiclass", BadData, "Drop such classes or merge"),
        (SplitPlan("curve", sizes=(5,)), LONE, "multiclass", BadData, "'maybe'"),
        (SplitPlan(), [0, 0, 1, 1], "binary", BadData, "4 rows are too few: .* has no val row"),
        (
            SplitPlan("kfold", folds=9),
            [0, 1] * 4,
            "binary",
            BadSpec,
            "at most the number of rows, 8",
        ),
        (SplitPlan("kshot", shots=5), [0, 1] * 10, "binary", BadData, "'no' has 10 rows.*takes 11"),
        (SplitPlan("kshot"), np.arange(50.0), "regression", BadSpec, "'curve' with sizes"),
        (SplitPlan("curve"), [0, 1] * 20, "binary", BadSpec, r"needs training sizes.*got \(\)"),
        (SplitPlan("curve", sizes=(1, 9)), [0, 1] * 20, "binary", BadSpec, "at least 2"),
        (SplitPlan("curve", sizes=(9, 99)), [0, 1] * 20, "binary", BadSpec, r"28 rows, got \[99\]"),
        (
            SplitPlan("fixed"),
            [0, 1] * 20,
            "binary",
            BadData,
            "The data have no parts; fixed parts are named",
        ),
    ],
)
def test_rows_that_cannot_be_split_are_refused_with_the_reason(plan, labels, task, error, words):
    with pytest.raises(error, match=words):
        split(np.array(labels), plan, task=task, classes=("no", "yes", "maybe"))


def test_fixed_parts_without_a_test_part_are_refused_with_the_parts_there_are():
    parts = np.array(["train", "dev"] * 5)
    with pytest.raises(BadData, match=r"no 'test' part .they have: dev, train"):
        split(np.array([0, 1] * 5), SplitPlan("fixed"), task="binary", parts=parts)


def test_kshot_in_a_train_part_that_lacks_a_class_names_it():
    labels, parts = np.array([0, 1] * 10), np.array(["train", "test"] * 10)
    with pytest.raises(BadData, match="Class '1' has 0 rows, and shots=2 takes 4"):
        split(labels, SplitPlan("kshot", shots=2), task="binary", parts=parts)
