"""Studies as data: what a paper found, the runs that show it, and how far off it may be.

A study is a TOML file here, or one of yours. Its steps are specs of any verb; its findings say
which cells of their tables are compared, in which direction, and with which tolerance.
"""

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import Field

from cutaway.core.errors import BadSpec
from cutaway.core.lookup import lookup
from cutaway.core.spec import Spec, build_spec, parse_toml

AGGREGATIONS = ("mean", "max", "min")


class FindingSide(Spec):
    """One number: cells of a step's table, taken together; or a plain value."""

    step: str | None = None
    """The step whose table is read."""
    metric: str = "accuracy"
    """The metric that is read."""
    where: dict[str, Any] = Field(default_factory=dict)
    """Columns and what must stand in them; {not = ""} for what must not."""
    given: dict[str, float] = Field(default_factory=dict)
    """Other metrics of the same cell that must be at least this."""
    take: str = "mean"
    """How several cells become one number: mean, max or min."""
    value: float | None = None
    """A plain number instead of a table's."""


class Finding(Spec):
    """`more` is at least `less` plus `by`, give or take `tolerance`."""

    says: str
    """The finding, in words."""
    more: FindingSide
    """What should be larger."""
    less: FindingSide
    """What should be smaller."""
    by: float = 0.0
    """By how much at least, as the paper has it."""
    tolerance: float = Field(default=0.0, ge=0)
    """By how much it may miss that and still count."""


class StudyStep(Spec):
    """One run: a verb and its fields."""

    name: str
    """What findings call it."""
    verb: str
    """A verb of the command line."""
    fields: dict[str, Any] = Field(default_factory=dict)
    """Its options; <model>, <data>, <task>, <text> and <out> are filled in, empty ones left out."""


class Study(Spec):
    """A paper's findings and the runs that show them."""

    name: str
    """Its name on the command line."""
    title: str
    """The question."""
    paper: str
    """Who found it, where."""
    defaults: dict[str, str]
    """What the placeholders stand for unless the user says otherwise."""
    steps: tuple[StudyStep, ...] = Field(min_length=1)
    """The runs, in order."""
    findings: tuple[Finding, ...] = Field(min_length=1)
    """What they should show."""


def find_study(name: str) -> Study:
    """A study of ours by its name, or one in a TOML file; UnknownName suggests near ones."""
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
    """Our studies, by name."""
    texts = [
        f.read_text(encoding="utf-8")
        for f in files(__package__).iterdir()
        if f.name.endswith(".toml")
    ]
    studies = [_validated(build_spec(Study, parse_toml(text))) for text in texts]
    return {study.name: study for study in sorted(studies, key=lambda s: s.name)}


def _validated(study: Study) -> Study:
    """The study, when every side of its findings can be read."""
    steps = {step.name for step in study.steps}
    for finding in study.findings:
        for side in (finding.more, finding.less):
            if side.value is None and side.step not in steps:
                raise BadSpec(
                    f"{study.name!r}: {finding.says!r} reads the step {side.step!r}. "
                    f"Steps: {', '.join(sorted(steps))}."
                )
            if side.take not in AGGREGATIONS:
                raise BadSpec(
                    f"{study.name!r}: take must be {', '.join(AGGREGATIONS)}, got {side.take!r}."
                )
    return study
