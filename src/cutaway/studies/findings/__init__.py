"""Studies: a paper's findings, the runs that test them, and the tolerances.

A study is a TOML file, in this folder or given by the user. Its steps are specs of verbs; each of
its findings compares cells of their tables.
"""

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import Field

from cutaway.core.errors import BadSpec
from cutaway.core.lookup import lookup
from cutaway.core.spec import Spec, build_spec, parse_toml

AGGREGATIONS = ("mean", "max", "min", "chosen")


class FindingSide(Spec):
    """One side of a comparison: a number from cells of a step's table, or a constant."""

    step: str | None = None
    """The step whose table is used."""
    metric: str = "accuracy"
    """The metric."""
    where: dict[str, Any] = Field(default_factory=dict)
    """Columns and their required values; {not = ""} excludes a value."""
    given: dict[str, float] = Field(default_factory=dict)
    """Minimum values of other metrics of the same cell."""
    take: str = "mean"
    """How to aggregate several cells: mean, max, min, or chosen (on validation rows)."""
    value: float | None = None
    """A constant instead of a table's value."""


class Finding(Spec):
    """The statement that `more` is at least `less` + `by` - `tolerance`."""

    says: str
    """The finding as a sentence."""
    more: FindingSide
    """The side expected to be larger."""
    less: FindingSide
    """The side expected to be smaller."""
    by: float = 0.0
    """The minimum difference according to the paper."""
    tolerance: float = Field(default=0.0, ge=0)
    """How much smaller the difference may be."""


class StudyStep(Spec):
    """One run: a verb and its options."""

    name: str
    """The name by which findings refer to it."""
    verb: str
    """A verb of the command line."""
    fields: dict[str, Any] = Field(default_factory=dict)
    """Its options; placeholders such as <model> and <out> are replaced, empty options omitted."""


class Study(Spec):
    """A paper's findings and the runs that test them."""

    name: str
    """Its name on the command line."""
    title: str
    """The claim of the paper."""
    paper: str
    """Authors, venue, link."""
    defaults: dict[str, str]
    """Default values of the placeholders."""
    steps: tuple[StudyStep, ...] = Field(min_length=1)
    """The runs, in order."""
    findings: tuple[Finding, ...] = Field(min_length=1)
    """What the runs are expected to show."""


def find_study(name: str) -> Study:
    """A bundled study by name, or one in a TOML file; UnknownName suggests similar names."""
    path = Path(name)
    if path.suffix == ".toml" and path.is_file():
        return _validated(build_spec(Study, parse_toml(_text(path))))
    return lookup(known_studies(), name, kind="study")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSpec(
            f"{str(path)!r} can't be read as a study: {error}. Save it as UTF-8."
        ) from None


@cache
def known_studies() -> dict[str, Study]:
    """The bundled studies by name."""
    texts = [
        f.read_text(encoding="utf-8")
        for f in files(__package__).iterdir()
        if f.name.endswith(".toml")
    ]
    studies = [_validated(build_spec(Study, parse_toml(text))) for text in texts]
    return {study.name: study for study in sorted(studies, key=lambda s: s.name)}


def _validated(study: Study) -> Study:
    """The study, after checking that its findings refer to its steps."""
    steps = {step.name for step in study.steps}
    for finding in study.findings:
        for side in (finding.more, finding.less):
            if side.value is None and side.step not in steps:
                raise BadSpec(
                    f"{study.name!r}: {finding.says!r} refers to the unknown step {side.step!r}. "
                    f"Steps: {', '.join(sorted(steps))}."
                )
            if side.take not in AGGREGATIONS:
                raise BadSpec(
                    f"{study.name!r}: take must be {', '.join(AGGREGATIONS)}, got {side.take!r}."
                )
    return study
