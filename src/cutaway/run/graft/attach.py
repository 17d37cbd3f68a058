"""`cutaway graft attach`: the base with a skill in it, as a plain checkpoint."""

from typing import Any

from cutaway.models.lm import LM
from cutaway.run.graft.checkpoint import Told, need_free, write_checkpoint
from cutaway.run.graft.skill import SHORT, Skill, load_skill
from cutaway.run.objects import Objects
from cutaway.run.opened import opened
from cutaway.run.screen import Screen
from cutaway.run.specs.graft import AttachSpec


def run(spec: AttachSpec, *, screen: Screen | None = None, objects: Objects | None = None) -> Told:
    """The checkpoint in --out; the base is refused unless it is the skill's own."""
    skill, out = load_skill(spec.skill), need_free(spec.out)
    lm = open_for_skill(skill, spec.base, spec)
    skill.attach(lm)
    write_checkpoint(lm, out, note_of(skill, "attached"))
    said = f"{out} is {lm.name} with the skill {skill.label!r}: {skill.size:,} weights changed."
    return Told((said,), {"out": str(out), "size": skill.size, "task": skill.task})


def open_for_skill(skill: Skill, name: str, spec: Any) -> LM:
    """The model in the precision the skill was learned in."""
    dtype = str(next(iter(skill.patch.after.values())).dtype).removeprefix("torch.")
    return opened(name, spec, dtype=dtype)


def note_of(skill: Skill, done: str) -> dict[str, Any]:
    """What a checkpoint says about the skill it was given or relieved of."""
    return {
        "graft": done,
        "task": skill.meta.get("task"),
        "size": skill.size,
        "base": {k: str(v)[:SHORT] if k != "name" else v for k, v in skill.meta["base"].items()},
    }
