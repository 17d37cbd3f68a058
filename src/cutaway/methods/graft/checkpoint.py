"""A model as a plain checkpoint folder, whole or not at all; and what a short verb tells."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cutaway.console import quiet_transformers
from cutaway.core.errors import BadSpec
from cutaway.home import need_expandable_path
from cutaway.models.lm import LM
from cutaway.store import files

NOTE_FILE = "cutaway.json"


def need_empty_folder(out: str) -> Path:
    """The folder to write to; BadSpec when something is there already."""
    path = need_expandable_path("--out", out)
    with files.disk_errors(path):
        taken = path.is_file() or (path.is_dir() and any(path.iterdir()))
    if taken:
        raise BadSpec(f"--out {out!r} has files in it already: give a folder that is empty or new.")
    return path


def write_checkpoint(
    lm: LM,
    out: Path,
    note: Mapping[str, Any],
    *,
    module: Any = None,
    also: Callable[[Path], None] | None = None,
) -> Path:
    """The model and its tokenizer as transformers saves them, with a note beside them.

    `module` is saved instead of the language model; `also` puts more into the folder.
    """
    aside, saved = files.temporary_path(out), module or lm.module
    files.check_free_space(out.parent, sum(p.nbytes for p in saved.parameters()))
    try:
        with files.disk_errors(out), quiet_transformers():
            saved.save_pretrained(aside)
            lm.tokenizer.save_pretrained(aside)
            if also is not None:
                also(aside)
            files.write_json(aside / NOTE_FILE, dict(note))
            files.remove_folder(out)
            aside.rename(out)
    finally:
        files.discard(aside)
    return out
