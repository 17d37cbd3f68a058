"""The sentences and the summary of nextword runs, from hand-made rows."""

import pytest

from cutaway.methods.nextword.rows import nextword_frame
from cutaway.methods.nextword.spec import FEATURES
from cutaway.methods.nextword.verdict import (
    FEATURE_NAMES,
    feature_scores,
    mean_scores,
    quad_verdict,
    summarise,
)

PROMPT = " It was"
NO_WORDS = {"tokens": {}, "missing": []}


def row(features: str, value: float | None, prompt: str = "", **more) -> dict:
    bounds = {} if value is None else {"low": value - 0.01, "high": value + 0.01}
    return {
        "model": "m", "task": "sst2", "prompt": prompt, "features": features, "repeat": 0,
        "metric": "accuracy", "value": value, "status": "done", "reason": "", **bounds, **more,
    }  # fmt: skip


def verdict(rows: list[dict], words=None, details=(), metric="accuracy") -> list[str]:
    summary, _ = summarise(
        nextword_frame(rows), {"sst2": "reviews"}, {"m on sst2": words or {}}, details,
        {"sst2": metric},
    )  # fmt: skip
    return summary["verdict"]


def test_the_first_sentence_is_the_best_feature_against_the_best_baseline() -> None:
    rows = [row("f", 0.9), row("phi_p", 0.8), row("subset", 0.7), row("bow", 0.75)]
    rows += [row("majority", 0.5)]
    first, second, third = verdict(rows)
    assert first == (
        "A linear classifier on the conditional mean embedding Phi p reaches accuracy 0.800 "
        "[0.790, 0.810] without a prompt; the best baseline (bow) reaches 0.750 (+0.050)."
    )
    assert second == "The hidden state f reaches 0.900, 0.100 more than phi_p."
    assert third.startswith("Accuracy without a prompt: f 0.900 [0.890, 0.910], phi_p 0.800")


def test_accuracies_that_are_close_count_as_equal() -> None:
    sentences = verdict([row("f", 0.81), row("p", 0.8)])
    assert "predict the label as well as f" in sentences[1]


def test_without_a_trained_next_word_feature_the_scores_are_listed() -> None:
    assert verdict([row("f", 0.8)]) == ["Accuracy without a prompt: f 0.800 [0.790, 0.810]."]


def test_sentences_name_the_main_metric() -> None:
    rows = [row(kind, v, p, metric="balanced_accuracy") for kind, v in (("f", 0.8), ("p", 0.7))
            for p in ("", PROMPT)]  # fmt: skip
    first, _, listing, prompt = verdict([*rows, row("f", 0.1)], metric="balanced_accuracy")
    assert "reaches balanced accuracy 0.700" in first
    assert listing.startswith("Balanced accuracy without a prompt: f 0.800")
    assert "changes balanced accuracy by: f +0.000" in prompt


def test_a_score_without_an_interval_is_shown_alone() -> None:
    assert verdict([row("f", 0.8, low=None, high=None)]) == ["Accuracy without a prompt: f 0.800."]


def test_the_effect_of_the_prompt_is_listed_for_each_kind() -> None:
    rows = [row("f", 0.8), row("p", 0.6), row("f", 0.85, PROMPT), row("p", 0.75, PROMPT)]
    assert "The prompt ' It was' changes accuracy by: f +0.050, p +0.150." in verdict(rows)


def test_the_best_zero_shot_score_has_its_prompt() -> None:
    rows = [row("f", 0.8), row("zeroshot", 0.5), row("zeroshot_calibrated", 0.7, PROMPT)]
    expected = (
        "Calibrated zero-shot classification, without training, reaches 0.700 [0.690, 0.710] with "
        "the prompt ' It was'."
    )
    assert expected in verdict(rows)


def test_the_diagnoses_are_one_sentence() -> None:
    values = {"r2_from_f": 0.9, "r2_linear": 0.5, "r2_quadratic": 0.8}
    rows = [row("f", 0.8), *(row("logz", v, metric=name) for name, v in values.items())]
    assert verdict(rows)[-1] == (
        "R2 on test rows: Phi p from f 0.900 (linear); log-partition from f 0.500 (linear), 0.800 "
        "(quadratic)."
    )
    assert not any("R2" in line for line in verdict(rows[:-1]))


def test_top_tokens_are_those_of_the_last_prompt_and_at_most_five() -> None:
    details = [
        {"model": "m", "task": "sst2", "figure": "tokens", "features": kind, "prompt": prompt,
         "label": label, "token": f" {label}{i}"}
        for kind in ("subset", "p")
        for prompt in ("", PROMPT)
        for label in ("bad", "good")
        for i in range(7)
    ]  # fmt: skip
    (line,) = [x for x in verdict([row("f", 0.8)], details=details) if "Tokens" in x]
    assert line.startswith("Tokens with the largest effect (p): bad: ' bad0'")
    assert "' good4'" in line and "' good5'" not in line


def test_missing_words_are_listed_once() -> None:
    words = {name: {"tokens": {}, "missing": ["zzzz"]} for name in ("classwords", "zeroshot")}
    lines = [x for x in verdict([row("f", 0.8)], words) if "zzzz" in x]
    assert lines == [
        "Left out of classwords because they are not single tokens of this model: 'zzzz'."
    ]


@pytest.mark.parametrize(("count", "cells"), [(1, "1 cell"), (3, "3 cells")])
def test_failed_cells_are_counted_with_the_first_reason(count, cells) -> None:
    failed = [row("p", None, status="failed", reason=f"p: no {i}") for i in range(count)]
    assert verdict([row("f", 0.8), *failed])[-1] == f"{cells} failed; the first: p: no 0"


def test_a_run_in_which_nothing_could_be_measured_has_no_best() -> None:
    rows = nextword_frame([row("p", None, status="failed", reason="p: broken"), row("bow", 0.5)])
    summary, baselines = summarise(
        rows, {"sst2": "reviews"}, {"m on sst2": {}}, [], {"sst2": "accuracy"}
    )
    assert summary["best"] is None and summary["failed"] == 1
    assert summary["verdict"][0] == "No feature could be measured."
    assert baselines == {"m on sst2": {"bow": 0.5}}


def test_several_models_and_tasks_are_named_in_each_sentence() -> None:
    rows = [row("f", 0.8), row("f", 0.6, model="n"), row("f", 0.7, task="cr")]
    words = {"m on sst2": {}, "n on sst2": {}, "m on cr": {}}
    metrics = {"sst2": "accuracy", "cr": "accuracy"}
    summary, baselines = summarise(
        nextword_frame(rows), {"sst2": "a", "cr": "b"}, words, [], metrics
    )
    starts = [line.split(":")[0] for line in summary["verdict"]]
    assert starts == ["m on sst2", "n on sst2", "m on cr"]
    assert [f["data"] for f in summary["findings"]] == ["a", "a", "b"]
    assert summary["best"]["features"] == "f" and set(baselines) == set(words)


def test_scores_are_means_over_repeats() -> None:
    table = nextword_frame([row("f", 0.6), row("f", 0.8, repeat=1)])
    assert mean_scores(table, "accuracy")["", "f"]["value"] == pytest.approx(0.7)


def test_every_feature_kind_has_a_name() -> None:
    assert set(FEATURES) <= set(FEATURE_NAMES)


def test_feature_scores_are_named_by_kind_and_prompt() -> None:
    rows = [row("f", 0.6), row("f", 0.8, PROMPT), row("phi_p", 0.9, metric="r2_from_f")]
    rows += [row("subset", 0.5), row("phi_p", None)]
    assert feature_scores(nextword_frame(rows)) == {
        "accuracy of f without a prompt": 0.6,
        "accuracy of f with the prompt ' It was'": 0.8,
        "R2 of Phi p from f without a prompt": 0.9,
    }


@pytest.mark.parametrize(("objective", "name"), [("quad", "Quad loss"), ("ce", "Cross-entropy")])
def test_the_verdict_of_a_training_has_losses_perplexity_and_scores(objective, name) -> None:
    first = {"step": 0, "held_quad": 4.0, "held_ce": 2.0}
    best = {"step": 40, "held_quad": 3.0, "held_ce": 1.0}
    lines = quad_verdict(objective, first, best, {"a": 0.5}, {"a": 0.6, "new": 1.0}, "out")
    losses = "4 -> 3" if objective == "quad" else "2 -> 1"
    assert lines[0] == (
        f"{name} per held-out token: {losses} after 40 steps; perplexity 7.389 -> 2.718."
    )
    assert lines[1] == "a: 0.500 before training, 0.600 after."
    assert lines[2].endswith("cutaway nextword --model out") and len(lines) == 3


def test_a_perplexity_too_large_for_a_float_is_bounded() -> None:
    point = {"step": 1, "held_quad": 1.0, "held_ce": 1e6}
    assert "e+304" in quad_verdict("quad", point, point, {}, {}, "out")[0]
