"""`cutaway graft overlap`: measure which weights skills share."""

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
from cutaway.methods.graft.verdict import overlap_verdict
from cutaway.recipe.life_cycle import Context, Outcome, Run
from cutaway.recipe.result import Row
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
    skills = [load_skill(file) for file in spec.skill]
    digests = [sha256_file(Path(file)) for file in spec.skill]
    need_same_base(skills)
    return OverlapRequest(spec, skills, digests)


def measure(request: OverlapRequest, run: Run) -> Outcome:
    """The matrix |i and j| / |j|, and the value expected by chance."""
    skills, labels = request.skills, unique_labels(request.skills)
    rows, base = overlap_rows(skills), skills[0].meta["base"]
    matrix: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["kind"] == "learned":
            matrix.setdefault(row["task"], {})[row["data"]] = row["value"]
    return graft_outcome(
        "overlap",
        rows,
        model={"name": base["name"], "digest": base.get("digest"), "checksum": base["checksum"]},
        data={"name": ", ".join(labels), "rows": len(skills), "files": list(request.spec.skill)},
        summary={
            "skills": {label: skill.size for label, skill in zip(labels, skills, strict=True)},
            "overlap": matrix,
            "verdict": overlap_verdict(matrix),
        },
    )


def overlap_rows(skills: Sequence[Skill]) -> list[Row]:
    """One row per ordered pair: `task` is skill i, `data` skill j, value |i and j| / |j|."""
    labels, rows = unique_labels(skills), []
    overlap = select.overlap_matrix([skill.patch.mask for skill in skills])
    for i, skill in enumerate(skills):
        coordinates = GraftCoordinates(skill.meta["base"]["name"], None, labels[i])
        total = skill.meta.get("trained")
        for j, label in enumerate(labels):
            cell: dict[str, Any] = {"sparsity": skill.meta.get("sparsity"), "data": label}
            rows.append(coordinates.row("learned", "overlap", float(overlap[i, j]), **cell))
            # A random mask as large as i contains |i| / total of the weights of j.
            chance = skill.size / total if total else None
            rows.append(coordinates.row("random", "overlap", 1.0 if i == j else chance, **cell))
    return rows


def unique_labels(skills: Sequence[Skill]) -> list[str]:
    """A label per skill; skills of the same task are numbered."""
    names = [skill.label for skill in skills]
    return [
        name if names.count(name) == 1 else f"{name} {names[: i + 1].count(name)}"
        for i, name in enumerate(names)
    ]
