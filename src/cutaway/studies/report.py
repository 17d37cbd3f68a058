"""The result of a study as Markdown or text. Needs no torch."""

from collections.abc import Mapping
from typing import Any

from cutaway.report.formats import number

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
            "yes" if one["passed"] else "no",
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
    for says, expected, more, less, gap, holds in finding_rows(study):
        mark = "holds" if holds == "yes" else "FAILS"
        text += [
            f"{mark}  {says}",
            f"       expected {expected}; measured {more} against {less}, difference {gap}",
        ]
    return "\n".join([*text, "", findings_verdict(study)])


def findings_verdict(study: Mapping[str, Any]) -> str:
    """The number of findings that hold."""
    return f"{study['passed']} of {study['findings']} findings hold."


def _inputs_text(study: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value!r}" for name, value in study["places"].items() if value) + "."


def _interval_text(measured: Mapping[str, float | None]) -> str:
    value, low, high = measured["value"], measured["low"], measured["high"]
    if low is None or high is None or low == high:
        return number(value)
    return f"{number(value)} [{number(low)}, {number(high)}]"
