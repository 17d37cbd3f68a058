"""`cutaway graft detach`: a model without its skill, which is the base again, bit for bit."""

from cutaway.console import Console
from cutaway.methods.graft.attach import open_for_skill, skill_note
from cutaway.methods.graft.checkpoint import need_empty_folder, write_checkpoint
from cutaway.methods.graft.skill import CHECKSUM_CHARS, load_skill
from cutaway.methods.graft.spec import DetachSpec
from cutaway.recipe.objects import Objects
from cutaway.recipe.result import ActionResult


def run(
    spec: DetachSpec, *, console: Console | None = None, objects: Objects | None = None
) -> ActionResult:
    """The checkpoint in --out; a model that hasn't the skill is refused."""
    skill, out = load_skill(spec.skill), need_empty_folder(spec.out)
    lm = open_for_skill(skill, spec.model, spec)
    skill.detach(lm)
    write_checkpoint(lm, out, skill_note(skill, "detached"))
    base = skill.meta["base"]
    said = (
        f"{out} is {lm.name} without the skill {skill.label!r}: {base['name']} again, bit for bit "
        f"(weights {base['checksum'][:CHECKSUM_CHARS]})."
    )
    return ActionResult(
        (said,), {"out": str(out), "size": skill.size, "checksum": base["checksum"]}
    )
