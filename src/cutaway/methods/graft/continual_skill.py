"""The skill of one task of a course: found in what was learned, and what its file says."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cutaway.core.spec import build_spec
from cutaway.methods.graft.evaluation import make_evaluator
from cutaway.methods.graft.mask_search import MaskSearch
from cutaway.methods.graft.maths.patch import make_patch
from cutaway.methods.graft.maths.select import Params, mask_size
from cutaway.methods.graft.maths.soft_mask import assign_weights
from cutaway.methods.graft.model_pair import ModelPair
from cutaway.methods.graft.skill import Skill
from cutaway.methods.graft.spec import LearnSpec
from cutaway.methods.graft.summary import skill_metadata
from cutaway.models.digests import checksum
from cutaway.recipe.table import Row

if TYPE_CHECKING:
    from cutaway.methods.graft.continual import ContinualContext, ContinualTask

# What a skill file calls the kinds of a course's rows.
SKILL_KINDS = {"base": "base", "outside": "tuned", "graft": "learned"}


def pair_after_task(
    work: "ContinualContext", course: "ContinualTask", before: Params, base: str
) -> ModelPair:
    """The model as it was before the task, which it is again now, and as the task left it."""
    facts = {
        "base": {"name": work.lm.name, "digest": work.lm.digest, "checksum": base},
        "tuned": {
            "name": f"{work.lm.name} after {course.name}",
            "checksum": checksum(work.lm.params()),
        },
    }
    tuned = {name: value.detach().clone() for name, value in work.params.items()}
    assign_weights(work.params, before)
    return ModelPair(work.lm, course.pupil, work.params, before, tuned, {}, facts)


def learn_task_skill(work: "ContinualContext", course: "ContinualTask", pair: ModelPair) -> Skill:
    """The few weights that hold what the task taught."""
    wanted = _learn_spec(work, course)
    trial = make_evaluator(course.pupil, course.lesson, wanted, None)
    search = MaskSearch(wanted, pair, trial, course.lesson.train, work.console)
    size = mask_size(work.spec.sparsity, pair.total)
    search.rank([size])
    mask = search.learned(size, work.spec.seed).mask
    shapes = {name: tuple(pair.base[name].shape) for name in mask.places}
    return Skill(make_patch(pair.base, pair.tuned, mask), shapes, {})


def with_metadata(
    work: "ContinualContext",
    course: "ContinualTask",
    pair: ModelPair,
    skill: Skill,
    rows: Sequence[Row],
) -> Skill:
    """The skill with what `graft learn` says of one, and the tasks whose skills it stands on."""
    share = skill.size / pair.total
    renamed = [
        {**row, "kind": SKILL_KINDS[row["kind"]], "step": None, "sparsity": share} for row in rows
    ]
    meta: dict[str, Any] = skill_metadata(
        _learn_spec(work, course), pair, course.lesson, skill, renamed, share=share,
        seeds=(work.spec.seed,),
    )  # fmt: skip
    names = [one.name for one in work.courses]
    after = names[: names.index(course.name)]
    return Skill(skill.patch, skill.shapes, {**meta, "after": after})


def _learn_spec(work: "ContinualContext", course: "ContinualTask") -> LearnSpec:
    spec = work.spec
    return build_spec(
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
