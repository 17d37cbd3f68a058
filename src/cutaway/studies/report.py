"""The result of a study as Markdown or text. Needs no torch."""

from collections.abc import Mapping
from typing import Any

from cutaway.report.formats import number

SHOWN = {"holds": "yes", "fails": "no", "can't tell": "can't tell"}
FINDING_COLUMNS = ("finding", "expected", "more", "less", "difference", "holds")


def finding_rows(study: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """One row per finding, in the order of FINDING_COLUMNS."""
    return [
        (
            one["says"],
            one["expected"],
            _interval_text(one["more"]),
            _interval_text(one["less"]),
            _interval_text(one["difference"]),
            SHOWN[one["conclusion"]],
        )
        for one in study["judged"]
    ]


def study_markdown(study: Mapping[str, Any]) -> str:
    """The study as Markdown: title, paper, table, verdict."""
    rows = [FINDING_COLUMNS, ("---",) * len(FINDING_COLUMNS), *finding_rows(study)]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    source = f"{study['paper']}. {_inputs_text(study)}"
    return f"## {study['title']}\n\n{source}\n\n{table}\n\n{findings_verdict(study)}\n"


def study_text(study: Mapping[str, Any]) -> str:
    """The study as text: each finding with its expected and measured values."""
    text = [study["title"], f"{study['paper']}. {_inputs_text(study)}", ""]
    for one, line in zip(study["judged"], finding_rows(study), strict=True):
        says, expected, more, less, gap, _ = line
        text += [
            _finding_sentence(one["conclusion"], says, one["rows_factor"]),
            f"       expected {expected}; measured {more} against {less}, difference {gap}",
        ]
    return "\n".join([*text, "", findings_verdict(study)])


def _finding_sentence(conclusion: str, says: str, factor: float | None) -> str:
    """A finding with what is concluded, the conclusion first."""
    if conclusion == "holds":
        return f"holds  {says} (one-sided test, p < 0.05)"
    if conclusion == "fails":
        return f"FAILS  {says} (one-sided test, p < 0.05)"
    more = f": about {_times(factor)} times as many test rows would" if factor else ""
    return f"can't tell  {says} (these rows can't tell{more})"


def _times(factor: float) -> str:
    return f"{factor:.1f}" if factor < 10 else f"{factor:,.0f}"


def findings_verdict(study: Mapping[str, Any]) -> str:
    """The number of findings that hold, fail, and can't be told."""
    passed, failed, unknown = (study[name] for name in ("passed", "failed", "unknown"))
    return (
        f"{passed} of {study['findings']} findings hold, {failed} fail; these rows can't tell "
        f"about {unknown} (one-sided tests at 5 %)."
    )


def _inputs_text(study: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value!r}" for name, value in study["places"].items() if value) + "."


def _interval_text(measured: Mapping[str, float | None]) -> str:
    value, low, high = measured["value"], measured["low"], measured["high"]
    if low is None or high is None or low == high:
        return number(value)
    return f"{number(value)} [{number(low)}, {number(high)}]"
