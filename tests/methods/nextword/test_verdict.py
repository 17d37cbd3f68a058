"""The sentences and the summary of nextword runs, from made-up answers."""

import numpy as np
import pytest

from cutaway.methods.nextword.rows import nextword_frame
from cutaway.methods.nextword.spec import FEATURES
from cutaway.methods.nextword.verdict import FEATURE_NAMES, summarise
from tests.methods.nextword.scores import answers, measured_cell, measured_cells

PROMPT = " It was"


def summary(*cells, words=None, details=(), more=()) -> dict:
    rows, resampling = measured_cells(*cells)
    found, _ = summarise(
        nextword_frame([*rows, *more]), {"sst2": "reviews"}, {"m on sst2": words or {}}, details,
        {"sst2": "accuracy"}, resampling,
    )  # fmt: skip
    return found


def verdict(*cells, **more) -> list[str]:
    return summary(*cells, **more)["verdict"]


def extra(features: str, value: float | None, **more) -> dict:
    return {
        "model": "m", "task": "sst2", "prompt": "", "features": features, "repeat": 0,
        "metric": "accuracy", "value": value, "status": "done", "reason": "", **more,
    }  # fmt: skip


F = measured_cell("f", answers(0.8), [0.8])


def starting(lines: list[str], start: str) -> str:
    (found,) = [line for line in lines if line.startswith(start)]
    return found


def test_the_headline_is_chosen_on_validation_rows_and_the_best_on_test_is_second() -> None:
    found = summary(
        measured_cell("f", answers(0.9, seed=3), [0.7]),
        measured_cell("phi_p", answers(0.8), [0.8]),
        measured_cell("majority", answers(0.5, seed=1)),
    )
    first, second, third = found["verdict"][:3]
    assert first == (
        "Chosen on validation rows: the conditional mean embedding Phi p without a prompt, with "
        "accuracy 0.800 [0.758, 0.836] on the test rows."
    )
    assert second.startswith(
        "The best of the 2 cells on the test rows is the hidden state f without a prompt with "
        "0.900; choosing the best of them adds about 0.0"
    )
    assert third.startswith("Against the majority baseline (0.500): better, +0.300 [")
    assert "paired t over blocks of test rows, p < 0.001" in third
    (result,) = found["results"]
    assert result["headline"] == found["headline"]
    assert {**result["headline"], "low": 0, "high": 0} == {
        "model": "m", "data": "sst2", "metric": "accuracy", "value": 0.8, "low": 0, "high": 0,
        "chance": 0.5, "prompt": "", "features": "phi_p", "chosen_on": "validation",
        "chosen_in": 1, "repeats": 1,
    }  # fmt: skip
    assert result["best_on_test"]["features"] == "f" and result["best_on_test"]["cells"] == 2


def test_the_headline_over_splits_names_how_many_chose_it() -> None:
    lines = verdict(
        measured_cell("f", answers(0.9, repeats=3), [0.9, 0.1, 0.9]),
        measured_cell("p", answers(0.6, repeats=3), [0.5] * 3),
        measured_cell("bow", answers(0.6, repeats=3, seed=5)),
    )
    assert lines[0].startswith(
        "Chosen on validation rows: the hidden state f without a prompt (best on average, chosen "
        "in 2 of 3 splits); with each split's own choice, accuracy 0.800 ["
    )
    assert lines[0].endswith("on the test rows.")
    assert "of 3 splits" in starting(lines, "Against bag of words (0.600): ")


def test_a_cell_that_wins_on_both_is_named_once() -> None:
    lines = verdict(F, measured_cell("p", answers(0.6), [0.5]))
    assert lines[1].startswith("It is also the best of the 2 cells on the test rows; choosing")


def test_few_rows_cannot_tell_and_say_how_many_would() -> None:
    lines = verdict(
        measured_cell("phi_p", answers(0.71, n=38), [0.7]),
        measured_cell("bow", answers(0.605, n=38, seed=1)),
    )
    line = starting(lines, "Against bag of words (0.605): 38 test rows can't tell, +0.105 [")
    assert "about " in line and line.endswith(" would show a difference of 0.02.")


def test_next_word_features_are_compared_with_f_by_a_test() -> None:
    right = answers(0.8)
    same = verdict(measured_cell("f", right, [0.8]), measured_cell("p", right, [0.7]))
    line = starting(same, "Next-word features (p without a prompt, 0.800) against f")
    assert "(0.800): no difference larger than 0.02, +0.000 [-0.0" in line
    assert line.endswith("] (paired t over blocks of test rows, equivalence test).")
    worse = verdict(F, measured_cell("p", answers(0.6), [0.7]))
    assert "against f without a prompt (0.800): worse, -0.200 [" in starting(worse, "Next-word")
    assert not any(line.startswith("Next-word") for line in verdict(F))


def test_the_effects_of_the_prompt_hold_their_level_together() -> None:
    right = answers(0.6)
    more = right.copy()
    more[0, np.flatnonzero(right[0] == 0)[:60]] = 1
    lines = verdict(
        measured_cell("f", right, [0.6]), measured_cell("p", right, [0.6]),
        measured_cell("f", right, [0.6], PROMPT), measured_cell("p", more, [0.6], PROMPT),
    )  # fmt: skip
    line = starting(lines, "Effect of the prompt ' It was' on accuracy (paired t over blocks of")
    assert "2 comparisons at 5 % together): changes: p +0.150 [+0." in line
    assert "; no change larger than 0.02: f +0.000 [" in line
    few = verdict(
        measured_cell("f", answers(0.6, n=40), [0.6]),
        measured_cell("f", answers(0.7, n=40, seed=4), [0.6], PROMPT),
    )
    alone = starting(few, "Effect of the prompt")
    assert "(paired t over blocks of test rows): 40 test rows can't tell (about " in alone
    assert " would show a difference of 0.02): f +0.100 [" in alone


def test_zero_shot_is_chosen_on_validation_rows_and_compared_with_the_majority() -> None:
    lines = verdict(
        F, measured_cell("zeroshot", answers(0.9), [0.5]),
        measured_cell("zeroshot_calibrated", answers(0.7, seed=2), [0.7], PROMPT),
        measured_cell("majority", answers(0.5, seed=1)),
    )  # fmt: skip
    line = starting(lines, "Calibrated zero-shot classification, without training, reaches 0.700")
    assert "with the prompt ' It was'; against the majority baseline (0.500): better" in line
    assert starting(
        verdict(F, measured_cell("zeroshot", answers(0.9), [0.5])), "Zero-shot"
    ).endswith("without a prompt.")


def test_scores_are_listed_for_the_chosen_prompt() -> None:
    lines = verdict(F, measured_cell("p", answers(0.6), [0.5]))
    assert "Accuracy without a prompt: f 0.800 [0.758, 0.836], p 0.600 [0.551, 0.647]." in lines


def test_without_validation_scores_nothing_is_chosen() -> None:
    found = summary(measured_cell("f", answers(0.8)), measured_cell("bow", answers(0.6)))
    assert found["headline"] is None
    assert found["verdict"] == ["Accuracy without a prompt: f 0.800 [0.758, 0.836]."]


def test_the_diagnoses_are_one_sentence() -> None:
    values = {"r2_from_f": 0.9, "r2_linear": 0.5, "r2_quadratic": 0.8}
    rows = [extra("logz", v, metric=name) for name, v in values.items()]
    assert verdict(F, more=rows)[-1] == (
        "R2 on test rows without a prompt: Phi p from f 0.900 (linear); log-partition from f 0.500 "
        "(linear), 0.800 (quadratic)."
    )
    assert not any("R2" in line for line in verdict(F, more=rows[:-1]))


def test_top_tokens_are_those_of_the_last_prompt_and_at_most_five() -> None:
    details = [
        {"model": "m", "task": "sst2", "figure": "tokens", "features": kind, "prompt": prompt,
         "label": label, "token": f" {label}{i}"}
        for kind in ("subset", "p")
        for prompt in ("", PROMPT)
        for label in ("bad", "good")
        for i in range(7)
    ]  # fmt: skip
    start = "Tokens with the largest effect (p with the prompt ' It was'): bad: ' bad0'"
    line = starting(verdict(F, details=details), start)
    assert "' good4'" in line and "' good5'" not in line


def test_missing_words_are_listed_once() -> None:
    words = {name: {"tokens": {}, "missing": ["zzzz"]} for name in ("classwords", "zeroshot")}
    lines = [x for x in verdict(F, words=words) if "zzzz" in x]
    assert lines == [
        "Left out of classwords because they are not single tokens of this model: 'zzzz'."
    ]


@pytest.mark.parametrize(("count", "cells"), [(1, "1 cell"), (3, "3 cells")])
def test_failed_cells_are_counted_with_the_first_reason(count, cells) -> None:
    failed = [extra("p", None, status="failed", reason=f"p: no {i}") for i in range(count)]
    assert verdict(F, more=failed)[-1] == f"{cells} failed; the first: p: no 0"


def test_a_run_in_which_nothing_could_be_measured_has_no_headline() -> None:
    rows = nextword_frame(
        [extra("p", None, status="failed", reason="p: broken"), extra("bow", 0.5)]
    )
    names = {"sst2": "reviews"}, {"m on sst2": {}}, [], {"sst2": "accuracy"}
    found, baselines = summarise(rows, *names)
    assert found["headline"] is None and found["failed"] == 1
    assert found["verdict"][0] == "No feature could be measured."
    assert baselines == {"m on sst2": {"bow": 0.5}}


def test_several_models_and_tasks_are_named_in_each_sentence() -> None:
    rows, _ = F
    other = [{**row, **place} for place in ({"model": "n"}, {"task": "cr"}) for row in rows]
    words = {"m on sst2": {}, "n on sst2": {}, "m on cr": {}}
    metrics = {"sst2": "accuracy", "cr": "accuracy"}
    table = nextword_frame([*rows, *other])
    found, baselines = summarise(table, {"sst2": "a", "cr": "b"}, words, [], metrics)
    starts = dict.fromkeys(line.split(":")[0] for line in found["verdict"])
    assert list(starts) == ["m on sst2", "n on sst2", "m on cr"]
    assert [f["data"] for f in found["results"]] == ["a", "a", "b"]
    assert found["headline"]["features"] == "f" and set(baselines) == set(words)


def test_every_feature_kind_has_a_name() -> None:
    assert set(FEATURES) <= set(FEATURE_NAMES)


def test_accuracy_below_the_majority_is_reported_with_or_without_that_baseline() -> None:
    low, majority = measured_cell("f", answers(0.7), [0.7]), measured_cell("majority", answers(0.8))
    words = "Its accuracy is 0.700, not above the 0.800 of always answering the most frequent class"
    assert verdict(low, majority)[1].startswith(words)
    assert not any(
        "not above" in line for line in verdict(F, measured_cell("majority", answers(0.5)))
    )
    rows, resampling = measured_cells(low)
    found, _ = summarise(
        nextword_frame(rows), {"sst2": "reviews"}, {"m on sst2": {}}, [], {"sst2": "accuracy"},
        resampling, {"sst2": 0.8},
    )  # fmt: skip
    assert found["verdict"][1].startswith(words)


def test_the_accuracy_that_is_compared_with_the_majority_is_that_of_each_splits_choice() -> None:
    # Named for f, which has 0.9, but p was chosen in one of three splits and has 0.3 there.
    f = measured_cell("f", answers(0.9, repeats=3), [0.9, 0.1, 0.9])
    p = measured_cell("p", answers(0.3, repeats=3), [0.5] * 3)
    line = verdict(f, p, measured_cell("majority", answers(0.8, repeats=3)))[1]
    assert line.startswith("Its accuracy is 0.700, not above the 0.800")
