"""Generated texts as rows: one line per text and number, comparisons only where there are any."""

from dataclasses import replace

from cutaway.methods.shortcut.draft_choice import DraftSetting
from cutaway.methods.shortcut.generations import Generation, generation_rows

ONE = Generation("so i", " did", [4, 5], 6.0, 0.5, 0.2, 0.1)


def test_a_text_has_a_row_per_number() -> None:
    rows = generation_rows("m", "docs", [ONE], "ahead", DraftSetting("ahead", 0, 2, 0.1, 1.2))
    assert {row["metric"]: row["value"] for row in rows} == {
        "tokens": 2, "layers": 6, "accepted": 0.5, "seconds": 0.2, "processor_seconds": 0.1
    }  # fmt: skip
    assert all(row["text"] == "so i" and row["layer"] == 0 for row in rows)


def test_a_comparison_adds_its_rows() -> None:
    compared = replace(
        ONE, plain_tokens=[4, 5], plain_seconds=0.4, plain_processor_seconds=0.3, identical=True
    )
    rows = {r["metric"]: r for r in generation_rows("m", "docs", [compared], "full model", None)}
    assert rows["plain_seconds"]["value"] == 0.4 and rows["identical"]["value"] == 1.0
    assert "layer" not in rows["identical"]
