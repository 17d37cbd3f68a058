"""Checkpoint folders that `graft attach` and `graft detach` write."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cutaway.console import quiet_transformers
from cutaway.core.errors import BadSpec
from cutaway.home import need_expandable_path
from cutaway.methods.graft.skill import CHECKSUM_CHARS, Skill
from cutaway.models.lm import LM
from cutaway.recipe.open_for_spec import open_for_spec
from cutaway.recipe.output import OWNER_FILE
from cutaway.store import files


def need_empty_folder(out: str) -> Path:
    """The folder to write to; BadSpec when it has files."""
    path = need_expandable_path("--out", out)
    with files.disk_errors(path):
        taken = path.is_file() or (path.is_dir() and any(path.iterdir()))
    if taken:
        raise BadSpec(f"--out {out!r} already has files: give a folder that is empty or new.")
    return path


def open_for_skill(skill: Skill, name: str, spec: Any) -> LM:
    """The model in the precision that the skill was learned in."""
    dtype = str(next(iter(skill.patch.after.values())).dtype).removeprefix("torch.")
    return open_for_spec(name, spec, dtype=dtype)


def write_checkpoint(
    lm: LM,
    out: Path,
    skill: Skill,
    action: str,
    *,
    module: Any = None,
    also: Callable[[Path], None] | None = None,
) -> None:
    """Save the model and its tokenizer with a note about the skill; all of it or nothing.

    `module` is saved instead of the language model; `also` adds files to the folder.
    """
    aside, saved = files.temporary_path(out), module or lm.module
    files.check_free_space(out.parent, sum(p.nbytes for p in saved.parameters()))
    try:
        with files.disk_errors(out), quiet_transformers():
            saved.save_pretrained(aside)
            lm.tokenizer.save_pretrained(aside)
            if also is not None:
                also(aside)
            files.write_json(aside / OWNER_FILE, skill_note(skill, action))
            files.remove_folder(out)
            aside.rename(out)
    finally:
        files.discard(aside)


def skill_note(skill: Skill, action: str) -> dict[str, Any]:
    """What `cutaway.json` has about the skill that was attached or detached."""
    base = {k: v if k == "name" else str(v)[:CHECKSUM_CHARS] for k, v in skill.meta["base"].items()}
    return {"graft": action, "task": skill.meta.get("task"), "size": skill.size, "base": base}
