"""The sentences of quad, from hand-made losses and rows."""

import pytest

from cutaway.methods.nextword.rows import nextword_frame
from cutaway.methods.nextword.verdict_quad import feature_scores, quad_verdict
from tests.methods.nextword.run_rows import a_row

PROMPT = " It was"


def row(features: str, value: float | None, prompt: str = "", **more) -> dict:
    return a_row(features, value, prompt, **more)


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
