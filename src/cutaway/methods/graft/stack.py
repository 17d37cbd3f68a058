"""`cutaway graft stack`: combine several skills into one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cutaway import __version__
from cutaway.core.errors import BadSpec, Mismatch
from cutaway.methods.graft.held_out import skill_training_data
from cutaway.methods.graft.maths import patch as core
from cutaway.methods.graft.skill import CHECKSUM_CHARS, Skill, load_skill
from cutaway.methods.graft.spec import StackSpec
from cutaway.recipe.life_cycle import Context
from cutaway.recipe.result import ActionResult


def resolve(spec: StackSpec, context: Context) -> StackSpec:
    """The spec, once `--out` is known to be a skill file."""
    if not spec.out.endswith(".safetensors"):
        raise BadSpec(f"--out is a skill file that ends in .safetensors, got {spec.out!r}.")
    return spec


def perform(spec: StackSpec, context: Context) -> ActionResult:
    """Write the combined skill to `--out`."""
    made = stack_skills([load_skill(name) for name in spec.skill], spec.rule)
    made.save(Path(spec.out))
    facts = made.meta["stacked"]
    sentence = (
        f"{spec.out}: {made.size:,} weights of {len(spec.skill)} skills; {facts['conflicts']:,} of "
        f"them in conflict (resolved by {spec.rule})."
    )
    return ActionResult((sentence,), {"out": spec.out, "size": made.size, **facts})


def stack_skills(skills: Sequence[Skill], rule: str = "sum") -> Skill:
    """One skill with the changes of all; Mismatch for skills of different bases."""
    need_same_base(skills)
    made = core.stack_patches([skill.patch for skill in skills], rule)
    shapes = {name: shape for skill in skills for name, shape in skill.shapes.items()}
    meta: dict[str, Any] = {
        "base": skills[0].meta["base"],
        "task": {"name": "+".join(skill.label for skill in skills)},
        "size": made.patch.size,
        "stacked": {
            "of": [{"task": s.task, "size": s.size} for s in skills],
            "data": [one for skill in skills for one in skill_training_data(skill)],
            "rule": rule,
            "conflicts": made.conflicts,
        },
        "cutaway": __version__,
    }
    return Skill(made.patch, {n: shapes[n] for n in made.patch.mask.indices}, meta)


def need_same_base(skills: Sequence[Skill]) -> None:
    """Mismatch unless all skills were learned from the same weights."""
    first = skills[0].meta["base"]
    for skill in skills[1:]:
        base = skill.meta["base"]
        if base["checksum"] != first["checksum"]:
            raise Mismatch(
                f"The skills {skills[0].label!r} and {skill.label!r} come from different bases: "
                f"{first['name']!r} (weights {first['checksum'][:CHECKSUM_CHARS]}) and "
                f"{base['name']!r} (weights {base['checksum'][:CHECKSUM_CHARS]})."
            )
