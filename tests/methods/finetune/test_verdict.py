"""The sentences of a fine-tuning say whether it helped."""

import pytest

from cutaway.measure.intervals import Interval
from cutaway.measure.shared_rows import BlockScores
from cutaway.methods.finetune.verdict import finetune_verdict

NAN = float("nan")


def spread(value: float, *, alternating: bool = False) -> BlockScores:
    """A score of which half of the blocks are 0.05 above the mean, and half below."""
    signs = [(-1) ** i if alternating else 1 if i < 10 else -1 for i in range(20)]
    return BlockScores(tuple(value + 0.05 * sign for sign in signs), (value,), 50)


def verdict(before: float, after: float, low: float, constant: float, **more) -> list[str]:
    scores = {
        "base": {"accuracy": Interval(before, before - 0.05, before + 0.05, 0.95, 50)},
        "tuned": {"accuracy": Interval(after, low, after + 0.05, 0.95, 50)},
        "majority": {"accuracy": Interval(constant, NAN, NAN, 0.95, 50)},
    }
    for kind, value in more.items():
        scores[kind]["ece"] = Interval(value, NAN, NAN, 0.95, 50)
    blocks = {kind: spread(found["accuracy"].mean, alternating=kind == "tuned")
              for kind, found in scores.items()}  # fmt: skip
    return finetune_verdict(scores, blocks, "accuracy", task="sst2", steps=30, rows=32, shots=16)


def test_the_first_sentence_has_all_numbers() -> None:
    sentence, base, majority = verdict(0.5, 0.9, 0.85, 0.55)
    for part in ("from 0.500 to 0.900", "0.850 to 0.950", "50 test rows", "30 steps on 32 rows",
                 "(16 per class)", "the majority baseline scores 0.550"):  # fmt: skip
        assert part in sentence
    assert base.startswith(
        "Against the base: better, +0.400 [+0.347, +0.453] (paired t over blocks"
    )
    assert majority.startswith("Against the majority baseline: better, +0.350 [+0.297, +0.403]")


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((0.5, 0.55, 0.5, 0.52), "train longer"),
        ((0.5, 0.5, 0.45, 0.6), "Against the majority baseline: worse, -0.100"),
        ((0.9, 0.9, 0.85, 0.5), "Against the base: 50 test rows can't tell, +0.000 [-0.05"),
    ],
)
def test_a_training_that_did_not_help_is_named(numbers, words: str) -> None:
    assert any(words in sentence for sentence in verdict(*numbers))


def test_an_undefined_constant_score_is_no_bar() -> None:
    assert len(verdict(0.1, 0.9, 0.8, NAN)) == 2
    assert "scores undefined" in verdict(0.1, 0.9, 0.8, NAN)[0]


def test_calibration_is_given_before_and_after() -> None:
    last = verdict(0.5, 0.9, 0.85, 0.55, base=0.2, tuned=0.05)[-1]
    assert last == "Calibration error (ECE): 0.200 before, 0.050 after."
