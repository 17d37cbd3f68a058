"""The skill of one task of a course: found in what was learned, and what its file says."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cutaway.core.spec import build
from cutaway.methods.graft.patch import patch_of
from cutaway.methods.graft.relax import restore
from cutaway.methods.graft.select import Params, count
from cutaway.models.prints import checksum
from cutaway.run.graft.finish import skill_meta
from cutaway.run.graft.pair import Pair
from cutaway.run.graft.search import Search
from cutaway.run.graft.skill import Skill
from cutaway.run.graft.trial import trial_of
from cutaway.run.specs.graft import LearnSpec
from cutaway.run.table import Row

if TYPE_CHECKING:
    from cutaway.run.graft.continual import Course, Work

# What a skill file calls the kinds of a course's rows.
KINDS = {"base": "base", "outside": "tuned", "graft": "learned"}


def find_pair(work: "Work", course: "Course", before: Params, base: str) -> Pair:
    """The model as it was before the task, which it is again now, and as the task left it."""
    facts = {
        "base": {"name": work.lm.name, "digest": work.lm.digest, "checksum": base},
        "tuned": {
            "name": f"{work.lm.name} after {course.name}",
            "checksum": checksum(work.lm.params()),
        },
    }
    tuned = {name: value.detach().clone() for name, value in work.params.items()}
    restore(work.params, before)
    return Pair(work.lm, course.pupil, work.params, before, tuned, {}, facts)


def find_skill(work: "Work", course: "Course", pair: Pair) -> Skill:
    """The few weights that hold what the task taught."""
    wanted = _mask_spec(work, course)
    trial = trial_of(course.pupil, course.lesson, wanted, None)
    search = Search(wanted, pair, trial, course.lesson.train, work.screen)
    size = count(work.spec.sparsity, pair.total)
    search.rank([size])
    mask = search.learned(size, work.spec.seed).mask
    shapes = {name: tuple(pair.base[name].shape) for name in mask.places}
    return Skill(patch_of(pair.base, pair.tuned, mask), shapes, {})


def described(
    work: "Work", course: "Course", pair: Pair, skill: Skill, rows: Sequence[Row]
) -> Skill:
    """The skill with what `graft learn` says of one, and the tasks whose skills it stands on."""
    share = skill.size / pair.total
    renamed = [{**row, "kind": KINDS[row["kind"]], "step": None, "sparsity": share} for row in rows]
    meta: dict[str, Any] = skill_meta(
        _mask_spec(work, course), pair, course.lesson, skill, renamed, share=share,
        seeds=(work.spec.seed,),
    )  # fmt: skip
    names = [one.name for one in work.courses]
    after = names[: names.index(course.name)]
    return Skill(skill.patch, skill.shapes, {**meta, "after": after})


def _mask_spec(work: "Work", course: "Course") -> LearnSpec:
    spec = work.spec
    return build(
        LearnSpec,
        {
            "base": spec.base,
            "tuned": spec.base,
            "task": course.name,
            "sparsity": spec.sparsity,
            "optimizer": spec.mask_optimizer,
            "steps": spec.mask_steps,
            "step_examples": spec.step_examples,
            "baselines": "none",
            "seed": spec.seed,
        },
    )
