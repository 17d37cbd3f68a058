"""`cutaway graft detach`: write a checkpoint with a skill removed, which is the base again."""

from cutaway.methods.graft.checkpoint import need_empty_folder, open_skill_model, write_checkpoint
from cutaway.methods.graft.skill import CHECKSUM_CHARS, load_skill
from cutaway.methods.graft.spec import DetachSpec
from cutaway.recipe.life_cycle import Context
from cutaway.recipe.result import ActionResult


def resolve(spec: DetachSpec, context: Context) -> DetachSpec:
    """The spec, once `--out` is known to be free."""
    need_empty_folder(spec.out)
    return spec


def perform(spec: DetachSpec, context: Context) -> ActionResult:
    """Write the checkpoint to `--out`; a model without the skill is refused."""
    out = need_empty_folder(spec.out)
    opened = open_skill_model(load_skill(spec.skill), spec.model, spec)
    skill, lm = opened.skill, opened.lm
    skill.detach(lm)
    write_checkpoint(opened, out, skill.patch.reverse, "detached")
    base = skill.meta["base"]
    sentence = (
        f"{out} is {lm.name} without the skill {skill.label!r}: {base['name']}, bit for bit "
        f"(weights {base['checksum'][:CHECKSUM_CHARS]})."
    )
    facts = {"out": str(out), "size": skill.size, "checksum": base["checksum"]}
    return ActionResult((sentence,), facts)
