"""Laws of the next-word features: everything made block by block equals the dense product."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from cutaway.core.errors import BadData, BadSpec
from cutaway.methods.nextword.maths import readout
from cutaway.methods.nextword.maths.classify import (
    ClassifierSettings,
    c_grid_for,
    fit_logistic_cv,
    stratified_folds,
)
from cutaway.methods.nextword.maths.diagnose import linear_r2, log_partition_r2, n_directions
from cutaway.methods.nextword.maths.full_p import (
    choose_p_solver,
    classifier_logits,
    distribution_stats,
    fit_p,
)
from cutaway.methods.nextword.maths.readout import (
    OutputHead,
    expectations,
    next_token_probs,
    word_features,
)
from cutaway.methods.nextword.maths.tokens import top_tokens, with_examples
from cutaway.methods.nextword.maths.words import (
    check_distinct_tokens,
    class_token_ids,
    find_word_tokens,
)
from cutaway.methods.nextword.maths.zeroshot import class_scores, contextual_calibration

N, E, VOCAB = 240, 6, 260
HEADS = {
    "plain": {},
    "bias": {"bias": True},
    "capped": {"bias": True, "bend": lambda z: torch.tanh(z / 3) * 3},
}


def a_head(bias: bool = False, bend=None, dtype=torch.float64) -> OutputHead:
    rng = torch.Generator().manual_seed(1)
    phi = torch.randn(VOCAB, E, generator=rng, dtype=dtype)
    return OutputHead(phi, torch.randn(VOCAB, generator=rng, dtype=dtype) if bias else None, bend)


@pytest.fixture
def f() -> torch.Tensor:
    return torch.randn(N, E, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Several blocks, the last one shorter."""
    monkeypatch.setattr(readout, "BLOCK_ELEMENTS", 50 * VOCAB)


def labels(f: torch.Tensor, classes: int) -> np.ndarray:
    noise = torch.randn(len(f), generator=torch.Generator().manual_seed(2), dtype=f.dtype)
    score = (f[:, 0] + 0.4 * noise).numpy()
    return np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))


@pytest.mark.parametrize("head", HEADS)
def test_the_conditional_mean_equals_the_dense_product(head: str, f) -> None:
    output = a_head(**HEADS[head])
    p = torch.softmax(output(f), dim=1)
    got = expectations(f, output, {"phi_p": output.phi, "ones": torch.ones(VOCAB, 1).double()})
    torch.testing.assert_close(got.values["phi_p"], p @ output.phi)
    torch.testing.assert_close(got.values["ones"], torch.ones(N, 1, dtype=torch.float64))
    torch.testing.assert_close(got.logz, output(f).logsumexp(1))


@pytest.mark.parametrize("head", HEADS)
def test_p_adds_up_to_1_and_words_are_columns_of_the_logits(head: str, f) -> None:
    output, ids = a_head(**HEADS[head]), [3, 200, 7]
    p = next_token_probs(f, output)
    torch.testing.assert_close(p.sum(1), torch.ones(N, dtype=torch.float64))
    at = output.at(f, ids)
    torch.testing.assert_close(at, output(f)[:, ids])
    logz = output(f).logsumexp(1)
    torch.testing.assert_close(word_features(at, logz, "probs"), p[:, ids])
    assert word_features(at, logz, "logits") is at


def test_an_unknown_kind_of_word_feature_is_refused(f) -> None:
    with pytest.raises(BadSpec, match="logits or probs"):
        word_features(f, f[:, 0], "odds")


def test_a_projection_has_orthonormal_columns_and_a_seed() -> None:
    like = torch.zeros(1, dtype=torch.float64)
    made = readout.random_projection(5, VOCAB, seed=3, like=like)
    torch.testing.assert_close(made.T @ made, torch.eye(5, dtype=torch.float64))
    assert torch.equal(made, readout.random_projection(5, VOCAB, seed=3, like=like))
    assert not torch.equal(made, readout.random_projection(5, VOCAB, seed=4, like=like))
    with pytest.raises(BadSpec, match="vocabulary"):
        readout.random_projection(9, 8, seed=0, like=like)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("way", ["inside", "stream"])
def test_a_classifier_on_p_that_was_never_stored_is_the_dense_one(way, classes, f) -> None:
    output, y, rows = a_head(bias=True), labels(f, classes), np.arange(200)
    plan = ClassifierSettings(classes, tol=1e-8, most=4000)
    found = fit_p(f, output, y, [rows], plan, way=way)[0]
    known = distribution_stats(f[:200], output)
    x = ((next_token_probs(f, output) - known.mean) / known.scale)[:200].numpy()
    total, theirs = 0.0, 0.0
    for label in range(classes) if classes > 2 else [1]:
        aim = (y[:200] == label).astype(int)
        dense = LogisticRegression(C=found.c, tol=1e-10, max_iter=20_000).fit(x, aim)
        out = label if classes > 2 else 0
        logits = x @ (found.weights[out].numpy() * known.scale)
        bias = float(found.intercept[out] + found.weights[out] @ known.mean)
        total += objective(logits + bias, aim, found.c, found.weights[out] * known.scale)
        theirs += objective(dense.decision_function(x), aim, found.c, torch.tensor(dense.coef_[0]))
    assert total == pytest.approx(theirs, rel=1e-4)
    assert found.converged


def objective(z: np.ndarray, aim: np.ndarray, c: float, weights: torch.Tensor) -> float:
    return float(c * (np.logaddexp(0, z) - aim * z).sum() + 0.5 * weights.square().sum())


def test_both_ways_of_fitting_p_agree_and_score_rows_alike(f) -> None:
    output, y, trains = a_head(), labels(f, 2), [np.arange(150), np.arange(60, 210)]
    plan = ClassifierSettings(2, tol=1e-8, most=4000)
    one, other = (fit_p(f, output, y, trains, plan, way=way) for way in ("inside", "stream"))
    assert [a.c for a in one] == [b.c for b in other]
    torch.testing.assert_close(
        classifier_logits(one, f, output), classifier_logits(other, f, output), rtol=1e-4, atol=1e-4
    )
    dense = next_token_probs(f, output) @ one[0].weights.T + one[0].intercept
    torch.testing.assert_close(classifier_logits(one, f, output)[:, 0], dense)


def test_the_way_depends_on_rows_and_words() -> None:
    assert choose_p_solver(6920, 49152) == "inside"
    assert choose_p_solver(120_000, 50257) == "stream"
    assert choose_p_solver(500, 300) == "stream"
    with pytest.raises(BadSpec, match="way must be"):
        fit_p(
            torch.randn(4, E).double(),
            a_head(),
            np.arange(4),
            [np.arange(4)],
            ClassifierSettings(2),
            way="x",
        )


@pytest.mark.parametrize("multinomial", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_of_a_fit_add_up_and_it_learns(classes, multinomial, f) -> None:
    y = labels(f, classes)
    found = fit_logistic_cv(
        f, y, [np.arange(180)], ClassifierSettings(classes, multinomial=multinomial)
    )[0]
    p = found.probabilities(found.logits(f))
    assert p.shape == (N, classes)
    torch.testing.assert_close(p.sum(1), torch.ones(N, dtype=torch.float64))
    assert (p.argmax(1).numpy() == y)[180:].mean() > 0.6


def test_no_strength_is_chosen_because_its_search_ended_early() -> None:
    x = torch.randn(60, 300, generator=torch.Generator().manual_seed(3))
    y = (x[:, :3].sum(1) + 0.5 > 0).long().numpy()
    rows = np.arange(40)
    wanted = fit_logistic_cv(x, y, [rows], ClassifierSettings(2, tol=1e-9, most=5000))[0].c
    assert fit_logistic_cv(x, y, [rows], ClassifierSettings(2))[0].c == wanted
    assert fit_logistic_cv(x, y, [rows], ClassifierSettings(2, gap=None))[0].c > wanted


def test_shuffled_labels_are_at_chance(f) -> None:
    y = np.random.default_rng(0).permutation(labels(f, 2))
    found = fit_logistic_cv(f, y, [np.arange(160)], ClassifierSettings(2))[0]
    assert (found.probabilities(found.logits(f)).argmax(1).numpy() == y)[160:].mean() < 0.65


def test_folds_hold_every_training_row_once_with_all_classes(f) -> None:
    y, rows = labels(f, 3), np.arange(10, 130)
    folds = stratified_folds(y, rows, 5, seed=0, split=0)
    assert sorted(np.concatenate(folds).tolist()) == rows.tolist()
    assert all(len(np.unique(y[fold])) == 3 for fold in folds)
    with pytest.raises(BadData, match="fewer --folds"):
        stratified_folds(np.array([0, 0, 0, 1]), np.arange(4), 3, seed=0, split=0)


def test_strengths_are_the_references() -> None:
    assert c_grid_for(9_999)[0] == 1e-6 and c_grid_for(9_999)[-1] == 1e3
    assert c_grid_for(10_000)[0] == 1e-3 and c_grid_for(10_000)[-1] == 1e2


def test_a_linear_target_has_r2_1_and_a_random_one_none(f) -> None:
    train, test = torch.arange(150), torch.arange(150, N)
    linear = f @ torch.randn(E, 3, dtype=torch.float64) + 2
    assert linear_r2(f, linear, train, test) > 0.999
    noise = torch.randn(N, 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    assert linear_r2(f, noise, train, test) < 0.1
    with pytest.raises(BadData, match="two rows"):
        linear_r2(f, linear, train[:1], test)


def test_a_quadratic_log_partition_is_found_only_with_squares(f) -> None:
    train, test = torch.arange(170), torch.arange(170, N)
    found = log_partition_r2(f, f.square().sum(1) + f[:, 0], train, test)
    assert found.directions == E
    assert found.quadratic > 0.99 > 0.6 > found.linear
    assert n_directions(6920, 576) == 48 and n_directions(3, 576) == 0


WORDS = {" good": [1], "good": [2], "good ": [2, 9], " bad": [3], "bad": [4, 5], "bad ": [4, 9]}
WORDS |= {"Bad": [3], " fine": [1], "fine": [1]}


def encode(text: str) -> list[int]:
    return WORDS.get(text, [7, 8])


def test_every_spacing_that_is_one_token_counts_and_the_rest_is_told() -> None:
    found = find_word_tokens(["good", "bad", "odd", "good"], encode)
    assert found.tokens == {"good": (1, 2), "bad": (3,)}
    assert found.missing == ("odd",)
    assert found.ids == (1, 2, 3) and found.owners == ("good", "good", "bad")


def test_class_words_that_are_one_token_are_refused_with_both_names() -> None:
    words = ["good", "fine"]
    with pytest.raises(BadSpec, match="'good' and 'fine' are the same token"):
        check_distinct_tokens(words, find_word_tokens(words, encode))
    with pytest.raises(BadSpec, match="stands for two classes"):
        check_distinct_tokens(["good", "good"], find_word_tokens(["good"], encode))


def test_zero_shot_needs_one_known_word_for_each_class() -> None:
    found = find_word_tokens(["good", "bad", "odd"], encode)
    assert class_token_ids(["bad", "good"], found, ["no", "yes"]) == [[3], [1, 2]]
    with pytest.raises(BadSpec, match="1 words for 2 classes"):
        class_token_ids(["bad"], found, ["no", "yes"])
    with pytest.raises(BadSpec, match="'odd' is no single token"):
        class_token_ids(["bad", "odd"], found, ["no", "yes"])


def test_class_scores_sum_the_spellings_of_a_word() -> None:
    p = torch.tensor([[0.1, 0.2, 0.3]], dtype=torch.float64)
    got = class_scores(p.log(), [[0, 1], [2]]).exp()
    torch.testing.assert_close(got, torch.tensor([[0.5, 0.5]], dtype=torch.float64))


def test_calibration_makes_a_content_free_text_undecided() -> None:
    free = torch.tensor([[0.9, 0.1]], dtype=torch.float64).log()
    torch.testing.assert_close(
        contextual_calibration(free, free).exp(), torch.full((1, 2), 0.5).double()
    )
    leaning = torch.tensor([[0.8, 0.2]], dtype=torch.float64).log()
    assert contextual_calibration(leaning, free).argmax() == 1
    with pytest.raises(BadData, match="content-free"):
        contextual_calibration(free, free[:0])


def test_telling_tokens_move_the_score_of_their_own_class() -> None:
    weights = torch.tensor([[3.0, -2.0, 0.0, 5.0]])
    deviation = torch.tensor([1.0, 1.0, 1.0, 0.1])
    found = top_tokens(weights, deviation, classes=2, most=2)
    assert [(label, column) for label, column, *_ in found] == [(0, 1), (1, 0), (1, 3)]
    values = torch.tensor([[0.1, 0.9, 0.0], [0.5, 0.2, 0.0], [0.9, 0.3, 0.0]])
    told = with_examples(found, values, np.array([0, 1, 0, 1]), np.array([0, 2, 3]), each=1)
    assert [one.examples for one in told] == [(2,), (3,), (3,)]
