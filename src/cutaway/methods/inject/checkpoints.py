"""The checkpoints of a sweep: one folder per training, each of which transformers loads."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cutaway.console import quiet_transformers
from cutaway.core.errors import BadSpec
from cutaway.engine.process_group import process_group
from cutaway.models.lm import LM
from cutaway.recipe.output import OWNER_FILE, restore_checkpoint
from cutaway.store import files
from cutaway.store.results import Record

CHECKPOINT_FOLDER = "checkpoints"


class SweepCheckpoints:
    """The folder at `--out` with one checkpoint per training, or else in the run's folder."""

    def check_free(self, spec: Any, address: str | None = None) -> None:
        """BadSpec when `--out` is a file."""
        if spec.out is not None and Path(spec.out).is_file():
            raise BadSpec(f"--out must be a folder for the checkpoints, {spec.out!r} is a file.")

    def restore(self, spec: Any, done: Record) -> Record | None:
        """The finished run with its checkpoints at `--out`; None when one is lost."""
        if not spec.checkpoints or spec.out is None:
            return done
        out, summary = Path(spec.out), done.summary
        sources = (done.path / CHECKPOINT_FOLDER, Path(str(summary["checkpoints"])))

        def restore_all() -> bool:
            return all(
                restore_checkpoint(out / cell, "inject", done.address, [s / cell for s in sources])
                for cell in summary["cells"]
            )

        if not process_group().broadcast(restore_all):
            return None
        return replace(done, summary={**summary, "checkpoints": spec.out})

    def finish(self, spec: Any, saved: Record, scratch: Path) -> Record:
        """The saved run as it is."""
        return saved


def save_checkpoint(lm: LM, folder: Path, metadata: Mapping[str, Any]) -> None:
    """Write model, tokenizer and metadata to a folder, completely or not at all."""
    with files.replaced_folder(folder) as aside:
        with quiet_transformers():
            lm.module.save_pretrained(aside)
            lm.tokenizer.save_pretrained(aside)
        files.write_json(aside / OWNER_FILE, dict(metadata))
