"""The skill: its split, its loss and its scores."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cutaway.core.errors import BadData
from cutaway.data.load import load_text_set
from cutaway.methods.inject.examples import example_losses
from cutaway.methods.inject.skill import (
    answer_tests,
    dev_exact_match,
    drop_known_problems,
    evaluate_skill,
    make_skill_loss,
    problem_keys,
    read_skill,
    split_problems,
)
from cutaway.methods.inject.spec import InjectSpec
from cutaway.models.load import open_model
from tests.methods.inject.toys import SUMS


def test_train_and_test_share_no_question() -> None:
    for source in (SUMS, "gen:arithmetic?n=500,ops=+-x/,digits=1-3"):
        train, dev, test = split_problems(load_text_set(source), 0)
        assert not set(problem_keys(train)) & set(problem_keys(test))
        assert not set(problem_keys(train)) & set(problem_keys(dev))
    train = load_text_set(SUMS).part("train")
    with pytest.raises(BadData, match="is in train"):
        drop_known_problems(train, set(problem_keys(train)))


@pytest.fixture(scope="module")
def lm(toys):
    return open_model(toys["causal"], check=False)


def read(lm, **options):
    return read_skill(lm, InjectSpec(model="m", **{"data": SUMS, **options}))


def test_a_source_without_parts_is_split_by_seed() -> None:
    lines = load_text_set("gen:arithmetic?n=100,ops=-,digits=2").part("train")
    texts = replace(lines, parts=None)
    parts = split_problems(texts, 0)
    assert [len(part) for part in parts] == [72, 8, 20]
    assert sorted(t for part in parts for t in part.texts) == sorted(texts.texts)
    assert split_problems(texts, 0)[0].texts == parts[0].texts != split_problems(texts, 1)[0].texts
    with pytest.raises(BadData, match="at least 10"):
        split_problems(texts.take(range(9)), 0)


def test_a_sum_is_the_same_problem_in_both_orders_and_a_difference_is_not() -> None:
    lines = ["1 + 2 = 3", "2 + 1 = 3", "1 - 2 = -1", "2 - 1 = 1"]
    texts = load_text_set({"text": lines})
    first, second, third, fourth = problem_keys(texts)
    assert first == second
    assert third != fourth


def test_longer_problems_have_the_digits_and_operators_asked_for(lm) -> None:
    skill = read(lm, beyond=[2, 3])
    assert list(skill.beyond) == ["beyond 2 digits", "beyond 3 digits"]
    for digits, texts in zip((2, 3), skill.beyond.values(), strict=True):
        assert set(texts.meta["digits"].tolist()) == {digits}
        assert set(texts.meta["op"].tolist()) <= {"+", "-"}


def test_the_loss_is_the_mean_over_problems_of_the_mean_over_tokens(lm) -> None:
    skill = read(lm)
    rows = np.arange(5)
    with torch.no_grad():
        parts = make_skill_loss(lm, skill, 0.0).parts(rows)
        each = [example_losses(lm, skill.train_examples, [i]).item() for i in rows.tolist()]
    assert set(parts) == {"skill"}
    assert parts["skill"].item() == pytest.approx(np.mean(each), rel=1e-5)


def test_the_regression_term_is_added_with_its_weight(lm) -> None:
    skill = read(lm, data="gen:arithmetic?n=60,ops=+,digits=1-2,dev=10,test=20")
    rows = np.arange(6)
    with torch.no_grad():
        plain = make_skill_loss(lm, skill, 0.0).parts(rows)["skill"]
        parts = make_skill_loss(lm, skill, 0.3).parts(rows)
    assert parts["regression"].item() > 0
    assert parts["skill"].item() == pytest.approx((plain + 0.3 * parts["regression"]).item())


def test_scores_of_perfect_answers_are_perfect(lm, monkeypatch) -> None:
    skill = read(lm, beyond=[2])
    monkeypatch.setattr(
        "cutaway.methods.inject.skill.generate_with_probabilities",
        lambda lm, texts, form: (list(texts.answers), np.ones(len(texts))),
    )
    monkeypatch.setattr(
        "cutaway.methods.inject.skill.generate_answers", lambda lm, texts, form: list(texts.answers)
    )
    scores, groups = evaluate_skill(answer_tests(lm, skill), seed=0)
    assert set(scores) == {"test", "beyond 2 digits"}
    assert all(score.exact_match.mean == 1.0 for score in scores.values())
    assert {name.split()[0] for name in groups} == {"digits", "op", "carries"}
    assert dev_exact_match(lm, skill) == 1.0
