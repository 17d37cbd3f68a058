"""`cutaway graft attach`: write a checkpoint of the base model with a skill added."""

from dataclasses import dataclass
from pathlib import Path

from cutaway.core.params import check_same_parameters
from cutaway.methods.graft.checkpoint import (
    SkillModel,
    need_empty_folder,
    open_skill_model,
    write_checkpoint,
)
from cutaway.methods.graft.maths.soft_mask import assign_weights
from cutaway.methods.graft.pair_precision import count_moved
from cutaway.methods.graft.skill import load_skill
from cutaway.methods.graft.spec import AttachSpec
from cutaway.recipe.life_cycle import Context
from cutaway.recipe.result import ActionResult
from cutaway.training.task_model import save_linear_head, sequence_classifier


@dataclass(frozen=True, eq=False)
class AttachRequest:
    """The skill, the model with it attached, and the folder to write to."""

    spec: AttachSpec
    opened: SkillModel
    out: Path


def resolve(spec: AttachSpec, context: Context) -> AttachRequest:
    """The base with the skill attached in memory; any other model is refused."""
    skill, out = load_skill(spec.skill), need_empty_folder(spec.out)
    opened = open_skill_model(skill, spec.base, spec)
    opened.skill.attach(opened.lm)
    return AttachRequest(spec, opened, out)


def perform(request: AttachRequest, context: Context) -> ActionResult:
    """Write the checkpoint to `--out`."""
    opened, out = request.opened, request.out
    skill, lm = opened.skill, opened.lm
    changed = count_moved(skill.patch.before, skill.patch.after)
    sentences = [
        f"{out} is {lm.name} with the skill {skill.label!r}: {changed:,} weights changed, stored "
        f"in {opened.precision}."
    ]
    if changed < skill.size:
        sentences.append(
            f"{skill.size - changed:,} more weights of the skill are the base's when rounded to "
            f"{opened.precision}."
        )
    if skill.head:
        write_with_head(opened, out)
        sentences.append("It has the classification head that the skill was learned with.")
    else:
        write_checkpoint(opened, out, skill.patch, "attached")
        if skill.meta.get("task", {}).get("mode") == "head":
            sentences.append(
                f"{request.spec.skill} was written by an earlier version and has no head: this is "
                f"the trunk alone, the head is in {skill.meta['tuned']['name']}. Learn the skill "
                "again, with another --runs, to keep both."
            )
    facts = {
        "out": str(out), "size": skill.size, "task": skill.task, "changed": changed,
        "precision": opened.precision,
    }  # fmt: skip
    return ActionResult(tuple(sentences), facts)


def write_with_head(opened: SkillModel, out: Path) -> None:
    """The model with the skill's head: the family's own, or a linear one in a separate file."""
    lm, skill = opened.lm, opened.skill
    at, classes = skill.meta["task"]["at"], skill.meta["task"]["words"]
    if at != "auto":
        write_checkpoint(
            opened, out, skill.patch, "attached",
            also=lambda to: save_linear_head(to, skill.head, at, classes, lm.name),
        )  # fmt: skip
        return
    module = sequence_classifier(lm, classes, seed=0)
    trunk = lm.params()
    head = {name: value for name, value in module.named_parameters() if name not in trunk}
    check_same_parameters(head, head=skill.head)
    assign_weights(head, skill.head)
    write_checkpoint(opened, out, skill.patch, "attached", module=module)
