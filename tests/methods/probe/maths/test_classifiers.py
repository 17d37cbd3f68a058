"""Laws for every row of the CLASSIFIERS table, and for what users bring."""

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from torch import nn

from cutaway.core.errors import BadData, BadSpec, UnknownName
from cutaway.measure.splits import Split
from cutaway.methods.probe.maths.cell import CLASSIFIERS, RaggedTokens, classifier, probe_split
from cutaway.methods.probe.maths.closed_form import logistic
from cutaway.methods.probe.maths.fitted import FitSettings
from cutaway.methods.probe.maths.train import ProbeTraining

VECTORS = {name: row for name, row in CLASSIFIERS.items() if row.kind != "tokens"}
SERVED = [(name, task) for name, row in VECTORS.items() for task in row.tasks]
CLASSES = {"binary": 2, "multiclass": 3, "multilabel": 2, "regression": 1}


def separable(task: str, n: int = 90, d: int = 6) -> tuple[torch.Tensor, np.ndarray]:
    """Labels that lie far apart in every feature, and along the axis of most variance."""
    rng = np.random.default_rng(0)
    place = rng.permutation(np.arange(n) % 3)
    x = 0.1 * rng.standard_normal((n, d))
    x += 10 * place[:, None]
    # Off the line, or a linear map could not single out the class in the middle.
    x[:, 3:] += 5 * (place == 1)[:, None]
    labels = {
        "binary": (place > 0).astype(int),
        "multiclass": place,
        "multilabel": np.stack([place > 0, place > 1], 1).astype(int),
        "regression": place / 2.0,
    }
    return torch.tensor(x, dtype=torch.float32), labels[task]


def thirds(n: int) -> Split:
    rows = np.arange(n)
    return Split(0, rows[: n // 2], rows[n // 2 : 2 * n // 3], rows[2 * n // 3 :])


@pytest.mark.parametrize(("name", "task"), SERVED)
def test_what_is_plain_to_see_is_read_without_a_fault(name: str, task: str) -> None:
    x, y = separable(task)
    found = probe_split(x, y, thirds(len(x)), name, task=task)
    if task == "regression":
        assert found.metrics["r2"] > 0.9
    else:
        assert found.metrics["accuracy"] == 1.0
    assert found.parameters > 0


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_task_that_is_not_served_is_refused_with_those_that_serve_it(name: str) -> None:
    row = CLASSIFIERS[name]
    for task in set(CLASSES) - set(row.tasks):
        with pytest.raises(BadSpec, match="ridge") as error:
            row.check(FitSettings(task, 1))
        assert name in str(error.value)


@pytest.mark.parametrize("name", [*(n for n, row in VECTORS.items() if row.streams), "qda", "mlp2"])
def test_balanced_classes_change_nothing_where_classes_are_equal_in_number(name: str) -> None:
    x, y = noisy(binary=True)
    split = thirds(len(x))
    for part in (split.train, split.val):
        y[part] = np.arange(len(part)) % 2
    plain = probe_split(x, y, split, name, task="binary")
    even = probe_split(x, y, split, name, task="binary", balanced=True)
    np.testing.assert_allclose(plain.scores, even.scores, rtol=1e-4, atol=1e-4)


def noisy(*, binary: bool, n: int = 120, d: int = 5) -> tuple[torch.Tensor, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
    z = x[:, 0] + 2 * rng.standard_normal(n)
    y = (z > 0).astype(int) if binary else np.digitize(z, [-1.5, 1.5])
    return torch.tensor(x), y


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize(
    ("name", "theirs"),
    [("lda", LinearDiscriminantAnalysis()), ("nb", GaussianNB())],
)
def test_scikit_learns_estimator_and_the_built_in_one_give_the_same_answer(name, theirs, binary):
    x, y = noisy(binary=binary)
    task = "binary" if binary else "multiclass"
    split = thirds(len(x))
    built, brought = (probe_split(x, y, split, c, task=task) for c in (name, theirs))
    np.testing.assert_array_equal(built.decisions, brought.decisions)
    for metric in ("accuracy", "f1_macro", "mcc", "accuracy_train"):
        assert built.metrics[metric] == pytest.approx(brought.metrics[metric])
    assert built.metrics["auc"] == pytest.approx(brought.metrics["auc"], abs=1e-3)
    assert built.metrics["ece"] == pytest.approx(brought.metrics["ece"], abs=1e-4)


def test_the_nearest_mean_is_scikit_learns():
    x, y = noisy(binary=False)
    split = thirds(len(x))
    theirs = NearestCentroid().fit(x[split.train].numpy(), y[split.train])
    ours = probe_split(x, y, split, "centroid", task="multiclass")
    np.testing.assert_array_equal(ours.decisions, theirs.predict(x[split.test].numpy()))


@pytest.mark.parametrize("binary", [True, False])
def test_scikit_learns_logistic_and_ours_at_the_same_strength_give_the_same_answer(binary):
    x, y = noisy(binary=binary)
    split = thirds(len(x))
    aim = FitSettings("binary" if binary else "multiclass", 2 if binary else 3)
    ours = logistic(x, torch.tensor(y), [split], aim, strengths=(0.1,), tol=1e-9)[0]
    chain = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, tol=1e-10, max_iter=10_000))
    theirs = classifier(chain).fit(
        x[split.train], torch.tensor(y[split.train]), x[:0], torch.tensor(y[:0]),
        task=aim.task, classes=aim.classes,
    )  # fmt: skip
    torch.testing.assert_close(
        ours.probabilities(x, ours.scores(x)), theirs.probabilities(x, theirs.scores(x)),
        rtol=1e-4, atol=1e-5,
    )  # fmt: skip


def test_the_strength_is_chosen_by_validation_loss_and_reported():
    x, y = noisy(binary=True)
    notes = probe_split(x, y, thirds(len(x)), "logistic", task="binary").notes
    assert notes["converged"]
    assert notes["gradient"] <= 1e-4
    with pytest.raises(BadData, match="validation"):
        rows = np.arange(len(x))
        logistic(x, torch.tensor(y), [Split(0, rows, rows[:0], rows)], FitSettings("binary", 2))


class Bare:
    """The least an estimator can be: no scikit-learn, no parameters."""

    def fit(self, x, y):
        self.threshold = x[y == 1][:, 0].min()

    def predict(self, x):
        return (x[:, 0] >= self.threshold).astype(int)


class OnlyTransform:
    def fit(self, x, y):
        self.axis = x[y == 1].mean(0) - x[y == 0].mean(0)

    def transform(self, x):
        return (x @ self.axis)[:, None]


@pytest.mark.parametrize(
    "given", [Bare(), Bare, OnlyTransform(), LinearSVC(), LinearRegression(), GaussianNB()]
)
def test_anything_with_fit_and_an_answer_is_a_classifier_and_stays_as_it_was(given):
    before = dict(vars(given))
    x, y = separable("binary")
    assert probe_split(x, y, thirds(len(x)), given, task="binary").metrics["accuracy"] == 1.0
    assert dict(vars(given)) == before


@pytest.mark.parametrize("given", [LinearSVC(), LinearRegression(), GaussianNB()])
@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_estimators_serve_several_classes_and_labels(given, task):
    x, y = separable(task)
    assert probe_split(x, y, thirds(len(x)), given, task=task).metrics["accuracy"] == 1.0


def test_a_class_that_was_never_seen_scores_lowest():
    x, y = separable("multiclass")
    split = thirds(len(x))
    train = split.train[y[split.train] != 2]
    found = probe_split(
        x, y, Split(0, train, split.val, split.test), LinearSVC(), task="multiclass"
    )
    assert 2 not in found.decisions
    assert np.isfinite(found.scores).all()


def test_an_estimator_that_leaves_its_seed_open_is_seeded():
    from sklearn.ensemble import RandomForestClassifier

    x, y = noisy(binary=True)
    first, second = (
        probe_split(x, y, thirds(len(x)), RandomForestClassifier(10), task="binary")
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.scores, second.scores)


def test_a_classifier_for_numbers_is_refused():
    x, y = separable("regression")
    with pytest.raises(BadSpec, match="regressor"):
        probe_split(x, y, thirds(len(x)), GaussianNB(), task="regression")


def test_an_estimator_that_raises_is_heard():
    class Broken(Bare):
        def fit(self, x, y):
            raise ZeroDivisionError("my own fault")

    x, y = separable("binary")
    with pytest.raises(ZeroDivisionError, match="my own fault"):
        probe_split(x, y, thirds(len(x)), Broken(), task="binary")


class OneLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, 1)

    def forward(self, x):
        return self.linear(x)[:, 0]


def two_arguments(d, outputs):
    return nn.Linear(d, outputs)


def seeded(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make()


@pytest.mark.parametrize(
    "given",
    [
        OneLayer,
        seeded(lambda: OneLayer(6)),
        two_arguments,
        lambda: nn.LazyLinear(1),
        nn.LazyLinear(1),
        seeded(lambda: nn.Sequential(nn.BatchNorm1d(6), nn.Dropout(0.1), nn.Linear(6, 1))),
    ],
)
def test_any_torch_module_is_trained(given):
    # 129 rows to learn from: batches of 128 would leave one alone.
    x, y = separable("binary", n=129 * 2)
    assert probe_split(x, y, thirds(len(x)), given, task="binary").metrics["accuracy"] == 1.0


def test_a_module_instance_keeps_its_weights():
    given = OneLayer(6)
    before = {k: v.clone() for k, v in given.state_dict().items()}
    x, y = separable("binary")
    probe_split(x, y, thirds(len(x)), given, task="binary")
    for name, value in given.state_dict().items():
        torch.testing.assert_close(value, before[name])


def test_bad_modules_are_refused():
    x, y = separable("multiclass")
    with pytest.raises(BadSpec, match=r"must give shape \(2, 3\)"):
        probe_split(x, y, thirds(len(x)), OneLayer, task="multiclass")
    with pytest.raises(BadSpec, match="needs 3 arguments"):
        classifier(lambda a, b, c: nn.Linear(a, b))
    with pytest.raises(BadSpec, match="fit and predict"):
        classifier(3.0)
    with pytest.raises(UnknownName, match="Did you mean 'lda'"):
        classifier("ldaa")


def test_training_is_seeded_and_leaves_the_process_random_numbers_alone():
    x, y = noisy(binary=True)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first = probe_split(x, y, thirds(len(x)), "glu", task="binary", seed=1)
    assert torch.equal(torch.rand(1), expected)
    again = probe_split(x, y, thirds(len(x)), "glu", task="binary", seed=1)
    other = probe_split(x, y, thirds(len(x)), "glu", task="binary", seed=2)
    np.testing.assert_array_equal(first.scores, again.scores)
    assert not np.array_equal(first.scores, other.scores)


def test_losses_are_logged_and_the_best_epoch_is_kept():
    x, y = noisy(binary=True)
    notes = probe_split(x, y, thirds(len(x)), "linear", task="binary").notes
    assert len(notes["train_loss"]) == len(notes["val_loss"]) >= 30
    assert notes["val_loss"][notes["best_epoch"] - 1] == min(notes["val_loss"])
    assert notes["train_loss"][-1] < notes["train_loss"][0]


@pytest.mark.parametrize(("n", "epochs"), [(5, 300), (256, 150), (1400, 30), (10_000, 30)])
def test_few_rows_get_more_epochs_and_many_the_thirty(n, epochs):
    assert ProbeTraining().rounds(n) == epochs


def marked(n: int = 240, d: int = 8) -> tuple[RaggedTokens, np.ndarray]:
    """Texts of 1 to 12 tokens; the label is written in the one token whose first entry is 6."""
    rng = np.random.default_rng(0)
    count = rng.integers(1, 13, n)
    offsets = np.concatenate([[0], np.cumsum(count)])
    values = rng.standard_normal((offsets[-1], d))
    y = np.arange(n) % 2
    place = offsets[:-1] + rng.integers(0, count)
    values[place, 0] = 6
    values[place, 1] = 2 * y - 1
    return RaggedTokens(torch.tensor(values, dtype=torch.float32), torch.tensor(offsets)), y


def test_the_attention_probe_finds_the_token_that_mean_pooling_drowns():
    texts, y = marked()
    mean = torch.stack([part.mean(0) for part in texts.values.split(texts.offsets.diff().tolist())])
    attended = probe_split(texts, y, thirds(len(texts)), "attention", task="binary")
    pooled = probe_split(mean, y, thirds(len(texts)), "linear", task="binary")
    assert attended.metrics["auc"] > pooled.metrics["auc"]


def test_attention_adds_up_to_one_and_starts_as_the_mean():
    from cutaway.methods.probe.maths.nets import AttentionProbe

    texts, _ = marked(20)
    probe = AttentionProbe(8, 3)
    with torch.no_grad():
        probe.query.normal_(generator=torch.Generator().manual_seed(0))
        weight = probe.weights(texts)
    total = torch.zeros(20).index_add(0, texts.owner, weight)
    torch.testing.assert_close(total, torch.ones(20))
    fresh = AttentionProbe(8, 3)
    torch.testing.assert_close(
        fresh.weights(texts), (1 / texts.offsets.diff())[texts.owner], check_dtype=False
    )


def test_texts_are_taken_whole_and_in_order():
    texts, _ = marked(20)
    index = torch.tensor([7, 0, 19, 7])
    some = texts.take(index)
    for place, text in enumerate(index.tolist()):
        start, stop = texts.offsets[text], texts.offsets[text + 1]
        mine = some.values[some.offsets[place] : some.offsets[place + 1]]
        torch.testing.assert_close(mine, texts.values[start:stop])


def test_offsets_that_do_not_fit_are_refused():
    from cutaway.core.errors import Mismatch

    with pytest.raises(Mismatch, match="number of token vectors"):
        RaggedTokens(torch.ones(5, 2), torch.tensor([0, 3]))
