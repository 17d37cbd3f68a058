"""The sentences of graft name the numbers they are made from, and judge them correctly."""

import pytest

from cutaway.measure.intervals import Difference, Interval
from cutaway.measure.shared_rows import BlockScores
from cutaway.methods.graft.verdict import (
    evaluation_verdict,
    forgetting_verdict,
    learning_verdict,
    moved_sentence,
    overlap_verdict,
)


def scores(learned: float, *, gain: float | None = 0.9, **others: float) -> dict:
    kinds = {"base": 0.5, "tuned": 0.9, "learned": learned, **others}
    found = {
        kind: {"accuracy": {"value": value, "low": value - 0.05, "high": value + 0.05}}
        for kind, value in kinds.items()
    }
    found["learned"]["relative_gain"] = {"value": gain}
    return found


def learned_verdict(table: dict, **more) -> list[str]:
    """The verdict on these scores; every second block is 0.05 above the mean of the learned mask,
    and every block of the second half above that of the others."""
    blocks = {}
    for kind, found in table.items():
        value = found["accuracy"]["value"]
        signs = [(-1) ** i if kind in ("learned", "tuned") else 1 - 2 * (i < 10) for i in range(20)]
        made = tuple(value + 0.05 * sign for sign in signs)
        blocks[kind] = BlockScores(made, (value,), 400)
    given = {"size": 1, "total": 10, "rows": 400, **more}
    return learning_verdict(table, blocks, "accuracy", "sst2", **given)


def test_the_first_sentence_has_size_and_scores() -> None:
    first, gain, kept = learned_verdict(scores(0.86), size=100, total=10_000)
    assert first.startswith(
        "100 of 10,000 tuned weights (1.0e-02) take accuracy on sst2 from 0.500"
    )
    assert "0.860" in first and "0.900" in first
    assert gain.startswith("The tuned model against the base: better, +0.400 [+0.366, +0.434]")
    assert kept == "The skill keeps 90% of this gain."


def test_the_share_of_the_gain_has_its_interval_if_there_is_one() -> None:
    table = scores(0.86)
    table["learned"]["relative_gain"] |= {"low": 0.812, "high": 0.991}
    assert learned_verdict(table)[2] == (
        "The skill keeps 90% of this gain (95 % interval 81% to 99%)."
    )


def test_a_tuning_without_gain_is_named() -> None:
    table = scores(0.5, gain=0.9, tuned=0.52)
    verdict = learned_verdict(table)
    assert verdict[1].startswith("The tuned model against the base: 400 test rows can't tell")
    assert not any("keeps" in sentence for sentence in verdict)


@pytest.mark.parametrize(
    ("learned", "word"),
    # One comparison is at 2.5 %: a difference of 0.036 has p = 0.038.
    [(0.8, "better, +0.100"), (0.736, "can't tell, +0.036"), (0.5, "worse, -0.200")],
)
def test_a_learned_mask_is_compared_with_every_baseline(learned: float, word: str) -> None:
    table = scores(learned, random=0.5, movement=0.7, fisher=float("nan"), removed=0.6)
    verdict = learned_verdict(table)
    masks = [sentence for sentence in verdict if "mask of the same size" in sentence]
    assert len(masks) == 2 and "against the movement mask of the same size (0.700)" in masks[1]
    assert word in masks[1]
    assert verdict[-1] == "Without these weights the tuned model has 0.600."


def test_an_evaluation_names_skill_set_and_both_scores() -> None:
    matrix = {kind: {"a": {"x": value}} for kind, value in (("base", 0.5), ("learned", 0.8))}
    assert evaluation_verdict(matrix, "f1", ["note"]) == [
        "a on x: f1 0.800 with the skill, 0.500 without.", "note",
    ]  # fmt: skip
    matrix |= {"tuned": {"a": {"x": 0.9}}, "removed": {"a": {"x": 0.6}}}
    (sentence,) = evaluation_verdict(matrix, "f1", [])
    assert sentence.endswith("Tuned model: 0.900, with the skill removed 0.600.")


def test_notes_survive_however_many_sets_there_are() -> None:
    line = {f"set {i}": 0.5 for i in range(40)}
    matrix = {"base": {"a": line}, "learned": {"a": line}}
    verdict = evaluation_verdict(matrix, "f1", ["note"])
    assert len(verdict) == 13 and verdict[-1] == "note"


def test_the_largest_overlap_is_that_of_two_different_skills() -> None:
    matrix = {"a": {"a": 1.0, "b": 0.25}, "b": {"a": 0.0, "b": 1.0}}
    assert overlap_verdict(matrix) == [
        "Largest overlap: a contains 25.0% of the weights of b; 1 of 2 pairs share none."
    ]


def forgetting(graft_end: float, plain_end: float) -> list[str]:
    line = {"task": "one", "learned": 0.9, "before": 0.5}
    table = [
        {**line, "way": "graft", "end": graft_end},
        {**line, "way": "sequential", "end": plain_end},
    ]
    means = {
        "graft": {"end": graft_end, "forgotten": 0.9 - graft_end},
        "sequential": {"end": plain_end, "forgotten": 0.9 - plain_end},
    }
    gap = graft_end - plain_end
    found = Difference(
        Interval(gap, gap - 0.06, gap + 0.06, 0.95, 2), 0.5 if abs(gap) < 0.06 else 0.01
    )
    return forgetting_verdict(table, means, ["one", "two"], found, 300)


def test_forgetting_is_reported_for_both_strategies() -> None:
    first, second, third = forgetting(0.85, 0.6)
    assert "one (learned first) scores 0.850 with grafts" in first and "0.600" in first
    assert "over the earlier task: 0.050 with grafts, 0.300 with sequential training" in second
    assert third.startswith("Grafts against sequential training at the end: better, +0.250")


def test_grafts_that_end_lower_come_with_a_remedy() -> None:
    assert forgetting(0.6, 0.8)[-1].endswith("Raise --sparsity.")
    # A difference that isn't shown needs none.
    assert "300 test rows can't tell" in forgetting(0.78, 0.8)[-1]


def test_another_precision_is_named_with_the_number_of_weights() -> None:
    same = dict.fromkeys(("base", "tuned", "compared"), "float32")
    mixed = same | {"tuned": "bfloat16", "compared": "bfloat16"}
    plain, said = (
        learned_verdict(scores(0.86), size=100, total=10_000, compared=compared)
        for compared in (same, mixed)
    )
    assert said[:-1] == plain
    assert said[-1].startswith("10,000 weights moved, compared in bfloat16 (base: float32, tuned:")
    assert moved_sentence(5, same) == "5 weights moved, compared in float32; any may be chosen."
