"""A study's table: every finding with what was expected and measured."""

from cutaway.studies.report import FINDING_COLUMNS, findings_verdict, study_markdown, study_text

STUDY = {
    "title": "Does it hold?", "paper": "Somebody 2020", "places": {"model": "tiny", "task": ""},
    "passed": 1, "failed": 1, "unknown": 1, "findings": 3,
    "judged": [
        {"says": "a beats b", "expected": "at least as much", "passed": True,
         "conclusion": "holds", "rows_factor": None,
         "more": {"value": 0.9, "low": 0.8, "high": 1.0},
         "less": {"value": 0.5, "low": 0.5, "high": 0.5},
         "difference": {"value": 0.4, "low": 0.3, "high": 0.5}},
        {"says": "c beats d", "expected": "at least 0.1 more", "passed": False,
         "conclusion": "fails", "rows_factor": None,
         "more": {"value": 0.1, "low": None, "high": None},
         "less": {"value": 0.2, "low": None, "high": None},
         "difference": {"value": -0.1, "low": None, "high": None}},
        {"says": "e beats f", "expected": "at least as much", "passed": False,
         "conclusion": "can't tell", "rows_factor": 12.3,
         "more": {"value": 0.5, "low": 0.4, "high": 0.6},
         "less": {"value": 0.5, "low": 0.4, "high": 0.6},
         "difference": {"value": 0.0, "low": -0.1, "high": 0.1}},
    ],
}  # fmt: skip


def test_the_table_has_a_row_per_finding_with_intervals_where_known():
    rows = [line for line in study_markdown(STUDY).splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(STUDY["judged"])
    assert all(row.count("|") == len(FINDING_COLUMNS) + 1 for row in rows)
    assert "0.900 [0.800, 1.000]" in rows[2]
    assert "| 0.500 |" in rows[2]
    assert [row.split("|")[-2].strip() for row in rows[2:]] == ["yes", "no", "can't tell"]


def test_the_terminal_says_which_finding_fails_and_how_many_hold():
    said = study_text(STUDY)
    assert "holds  a beats b (one-sided test" in said
    assert "FAILS  c beats d (one-sided test" in said
    assert "can't tell  e beats f (these rows can't tell: about 12 times" in said
    assert said.endswith(findings_verdict(STUDY))
    assert findings_verdict(STUDY).startswith("1 of 3 findings hold, 1 fail; ")
    assert "model 'tiny'." in said
