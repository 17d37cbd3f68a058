"""Checkpoint folders that `graft attach` and `graft detach` write."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cutaway.console import quiet_transformers
from cutaway.core.errors import BadSpec
from cutaway.home import need_expandable_path
from cutaway.methods.graft.maths.patch import Patch
from cutaway.methods.graft.patched_copy import copy_patched
from cutaway.methods.graft.skill import CHECKSUM_CHARS, Skill
from cutaway.models.checkpoint import fetch_checkpoint
from cutaway.models.lm import LM
from cutaway.models.load import split_adapter
from cutaway.models.precision import DIGITS, coarsest, stored_precision
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


@dataclass(frozen=True, eq=False)
class SkillModel:
    """A model opened in the precision of a skill, and the skill as its checkpoint stores it."""

    lm: LM
    skill: Skill
    precision: str
    """The precision of the stored weights, or the skill's if that is coarser."""
    source: Path | None
    """The checkpoint's folder, if its files can be changed: no adapter, no coarser skill."""


def open_for_skill(skill: Skill, name: str, spec: Any) -> LM:
    """The model in the precision that the skill was learned in."""
    return open_for_spec(name, spec, dtype=skill.precision)


def open_skill_model(skill: Skill, name: str, spec: Any) -> SkillModel:
    """The model in the skill's precision, with the skill's values rounded as its files are."""
    lm = open_for_skill(skill, name, spec)
    base, adapter = split_adapter(name, None)
    stored = stored_precision(base, offline=spec.offline)
    precision = coarsest([stored, skill.precision])
    keeps_files = adapter is None and DIGITS[stored] <= DIGITS[skill.precision]
    source = fetch_checkpoint(base, offline=spec.offline).folder if keeps_files else None
    return SkillModel(lm, skill.rounded_to(precision), precision, source)


def write_checkpoint(
    opened: SkillModel,
    out: Path,
    patch: Patch,
    action: str,
    *,
    module: Any = None,
    also: Callable[[Path], None] | None = None,
) -> None:
    """Save the model, changed by the patch already, with a note about the skill; all or nothing.

    The files are those of the checkpoint with the patch applied, so precision, shards and other
    files are kept. Where that can't be done, transformers saves the model in the same precision.
    `module` is saved instead of the language model; `also` adds files to the folder.
    """
    saved = module or opened.lm.module
    files.check_free_space(out.parent, sum(p.nbytes for p in saved.parameters()))
    with files.replaced_folder(out) as aside, files.disk_errors(out), quiet_transformers():
        plain = opened.source if module is None else None
        if plain is None or not copy_patched(saved, plain, aside, patch):
            saved.to(getattr(torch, opened.precision)).save_pretrained(aside)
            opened.lm.tokenizer.save_pretrained(aside)
        if also is not None:
            also(aside)
        files.write_json(aside / OWNER_FILE, skill_note(opened.skill, action))


def skill_note(skill: Skill, action: str) -> dict[str, Any]:
    """What `cutaway.json` has about the skill that was attached or detached."""
    base = {k: v if k == "name" else str(v)[:CHECKSUM_CHARS] for k, v in skill.meta["base"].items()}
    return {"graft": action, "task": skill.meta.get("task"), "size": skill.size, "base": base}
