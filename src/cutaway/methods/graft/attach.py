"""`cutaway graft attach`: the base with a skill in it, as a plain checkpoint."""

from pathlib import Path
from typing import Any

from cutaway.console import Console
from cutaway.core.params import check_same_parameters
from cutaway.methods.graft.checkpoint import need_empty_folder, write_checkpoint
from cutaway.methods.graft.maths.soft_mask import assign_weights
from cutaway.methods.graft.skill import CHECKSUM_CHARS, Skill, load_skill
from cutaway.methods.graft.spec import AttachSpec
from cutaway.models.lm import LM
from cutaway.recipe.objects import Objects
from cutaway.recipe.open_for_spec import open_for_spec
from cutaway.recipe.result import ActionResult
from cutaway.training.task_model import save_linear_head, sequence_classifier


def run(
    spec: AttachSpec, *, console: Console | None = None, objects: Objects | None = None
) -> ActionResult:
    """The checkpoint in --out; the base is refused unless it is the skill's own."""
    skill, out = load_skill(spec.skill), need_empty_folder(spec.out)
    lm = open_for_skill(skill, spec.base, spec)
    skill.attach(lm)
    headless = skill.meta.get("task", {}).get("mode") == "head" and not skill.head
    write = write_with_head if skill.head else _write_without_head
    write(lm, out, skill)
    said = [f"{out} is {lm.name} with the skill {skill.label!r}: {skill.size:,} weights changed."]
    if skill.head:
        said.append("It answers through the head that the skill was learned with.")
    if headless:
        said.append(
            f"Its head is not in {spec.skill}, which an earlier version wrote: this is the trunk "
            f"alone, the head is in {skill.meta['tuned']['name']}. Learn the skill again, with "
            "another --runs, to keep both."
        )
    return ActionResult(tuple(said), {"out": str(out), "size": skill.size, "task": skill.task})


def _write_without_head(lm: LM, out: Path, skill: Skill) -> None:
    write_checkpoint(lm, out, skill_note(skill, "attached"))


def write_with_head(lm: LM, out: Path, skill: Skill) -> None:
    """The model with the skill's head: the family's own, or a linear one in a file beside it."""
    task, note = skill.meta["task"], skill_note(skill, "attached")
    at, classes = task["at"], task["words"]
    if at != "auto":
        write_checkpoint(
            lm, out, note, also=lambda to: save_linear_head(to, skill.head, at, classes, lm.name)
        )
        return
    module = sequence_classifier(lm, classes, seed=0)
    trunk = lm.params()
    own = {name: value for name, value in module.named_parameters() if name not in trunk}
    check_same_parameters(own, head=skill.head)
    assign_weights(own, skill.head)
    write_checkpoint(lm, out, note, module=module)


def open_for_skill(skill: Skill, name: str, spec: Any) -> LM:
    """The model in the precision the skill was learned in."""
    dtype = str(next(iter(skill.patch.after.values())).dtype).removeprefix("torch.")
    return open_for_spec(name, spec, dtype=dtype)


def skill_note(skill: Skill, done: str) -> dict[str, Any]:
    """What a checkpoint says about the skill it was given or relieved of."""
    return {
        "graft": done,
        "task": skill.meta.get("task"),
        "size": skill.size,
        "base": {
            k: str(v)[:CHECKSUM_CHARS] if k != "name" else v for k, v in skill.meta["base"].items()
        },
    }
