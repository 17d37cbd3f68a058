"""`cutaway graft overlap`: how much of each skill's weights every other skill has too."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutaway.core.errors import BadSpec
from cutaway.methods.graft.maths import select
from cutaway.methods.graft.rows import GraftCoordinates
from cutaway.methods.graft.skill import Skill, load_skill
from cutaway.methods.graft.spec import OverlapSpec
from cutaway.methods.graft.stack import need_same_base
from cutaway.methods.graft.summary import graft_outcome
from cutaway.recipe.life_cycle import Context, Outcome, Run
from cutaway.recipe.table import Row
from cutaway.store.files import sha256_file


@dataclass(frozen=True)
class OverlapRequest:
    """The skills to compare."""

    spec: OverlapSpec
    skills: list[Skill]
    digests: list[str]

    @property
    def identity(self) -> dict[str, Any]:
        """The skill files by their content."""
        return {"skills": self.digests}


def resolve(spec: OverlapSpec, context: Context) -> OverlapRequest:
    """The skills, all learned from the same base."""
    if len(spec.skill) < 2:
        raise BadSpec(f"An overlap needs at least two skills, got {len(spec.skill)}.")
    digests = [sha256_file(Path(file)) for file in spec.skill]
    skills = [load_skill(file) for file in spec.skill]
    need_same_base(skills)
    return OverlapRequest(spec, skills, digests)


def measure(request: OverlapRequest, run: Run) -> Outcome:
    """The matrix |i and j| / |j|, and what chance alone would give."""
    skills, rows = request.skills, overlap_rows(request.skills)
    base = skills[0].meta["base"]
    model = {"name": base["name"], "digest": base.get("digest"), "checksum": base["checksum"]}
    return graft_outcome(
        "overlap",
        rows,
        model=model,
        data=skill_facts(skills, request.spec),
        summary=summarise_overlap(skills, rows),
    )


def skill_facts(skills: Sequence[Skill], spec: OverlapSpec) -> dict[str, Any]:
    """The skills as what was looked at."""
    return {
        "name": ", ".join(unique_labels(skills)),
        "rows": len(skills),
        "files": list(spec.skill),
    }


def overlap_rows(skills: Sequence[Skill]) -> list[Row]:
    """One row per ordered pair: `task` is skill i, `data` skill j, value |i and j| / |j|."""
    labels, found = (
        unique_labels(skills),
        select.overlap_matrix([skill.patch.mask for skill in skills]),
    )
    rows = []
    for i, one in enumerate(skills):
        where = GraftCoordinates(one.meta["base"]["name"], None, labels[i])
        total = one.meta.get("trained")
        for j, label in enumerate(labels):
            place: dict[str, Any] = {"sparsity": one.meta.get("sparsity"), "data": label}
            rows.append(where.row("learned", "overlap", float(found[i, j]), **place))
            # Two masks drawn at random share |i| / P of j's weights.
            chance = one.size / total if total else None
            rows.append(where.row("random", "overlap", 1.0 if i == j else chance, **place))
    return rows


def unique_labels(skills: Sequence[Skill]) -> list[str]:
    """A name per skill; skills of one task are numbered."""
    names = [skill.label for skill in skills]
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if names.count(name) == 1 else f"{name} {seen[name]}")
    return found


def summarise_overlap(skills: Sequence[Skill], rows: list[Row]) -> dict[str, Any]:
    """The matrix by name, and its largest entry in words."""
    matrix: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["kind"] == "learned":
            matrix.setdefault(row["task"], {})[row["data"]] = row["value"]
    apart = [(i, j, v) for i, line in matrix.items() for j, v in line.items() if i != j]
    i, j, most = max(apart, key=lambda found: found[2])
    return {
        "skills": {label: s.size for label, s in zip(unique_labels(skills), skills, strict=True)},
        "overlap": matrix,
        "verdict": [
            f"The largest overlap: {i} has {most:.1%} of the weights of {j}; "
            f"{sum(v == 0 for *_, v in apart)} of {len(apart)} pairs share none."
        ],
    }
