"""Estimates read as one sentence and as plain values."""

import json

from cutaway.recipe.cost import Estimate, SampleSize, with_samples


def test_an_estimate_is_one_sentence_with_its_notes() -> None:
    cost = Estimate("1,200 texts", 61.4, 512.3, 10.2, notes=("3 texts are truncated",))
    assert cost.sentence() == (
        "1,200 texts: about 61 s, about 512 MB of memory in addition to the model, 10 MB on disk; "
        "3 texts are truncated."
    )


def test_the_plain_values_have_the_counts_and_the_cost() -> None:
    plain = Estimate("2 steps", 1.0, 2.0, 3.0, {"steps": 2}).plain()
    assert plain == {"steps": 2, "seconds": 1.0, "memory_mb": 2.0, "disk_mb": 3.0}
    assert json.loads(json.dumps(plain)) == plain


def test_samples_add_their_size_to_the_last_estimate() -> None:
    first, last = with_samples(
        [Estimate("read", 1, 1), Estimate("fit", 1, 1, 2.0)], SampleSize(3_000_000, 50)
    )
    assert first == Estimate("read", 1, 1)
    assert last.sentence().endswith("152 MB on disk; samples: about 3,000,000 rows, 150.0 MB.")
    assert last.plain()["samples_rows"] == 3_000_000
    assert last.plain()["samples_mb"] == 150.0
