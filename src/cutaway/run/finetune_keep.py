"""What a fine-tuning leaves: a checkpoint folder with a note of where it comes from."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from cutaway.core.errors import BadSpec
from cutaway.models.lm import LM
from cutaway.run.finetune_rows import Scores, Where
from cutaway.run.lesson import Lesson
from cutaway.run.owned import NOTE, copy_folder, maker_of_folder
from cutaway.run.pupil import Pupil
from cutaway.run.specs.finetune import FinetuneSpec
from cutaway.run.training import Trained
from cutaway.store import files
from cutaway.store.records import run_folder
from cutaway.store.results import Record

CHECKPOINT = "checkpoint"


@dataclass(frozen=True, eq=False)
class Work:
    """A finished training with all that is told about it."""

    spec: FinetuneSpec
    name: str
    lm: LM
    pupil: Pupil
    lesson: Lesson
    params: Mapping[str, nn.Parameter]
    trained: Trained
    scores: Mapping[str, Scores]

    @property
    def where(self) -> Where:
        """The coordinates of its rows."""
        mode, spec = self.pupil.mode, self.spec
        return Where(self.lm.name, self.lesson.task.name, mode, spec.shots, spec.data_seed)


@contextmanager
def kept_checkpoint(work: Work) -> Iterator[dict[str, Path | bytes]]:
    """The checkpoint stands in --out; without it, its files are given for the run's own folder."""
    out = Path(work.spec.out) if work.spec.out else None
    with TemporaryDirectory() as scratch:
        aside = Path(scratch) if out is None else files.sibling(out)
        try:
            work.pupil.module.eval()
            work.pupil.save(aside)
            files.write_json(aside / NOTE, note_of(work))
            if out is None:
                yield {f"{CHECKPOINT}/{path.name}": path for path in sorted(aside.iterdir())}
            else:
                with files.disk_errors(out):
                    files.drop_folder(out)
                    aside.rename(out)
                yield {}
        finally:
            if out is not None:
                files.discard(aside)


def note_of(work: Work) -> dict[str, Any]:
    """What a checkpoint says about where it comes from."""
    form = work.pupil.asked.form
    return {
        "finetune": work.name,
        "base": {"name": work.lm.name, "digest": work.lm.digest},
        "task": work.lesson.task.name,
        "data": work.lesson.taught_on,
        "mode": work.pupil.mode,
        "template": form.template,
        "words": list(form.words),
        "trained": sorted(work.params),
        "test": {name: score.mean for name, score in work.scores["tuned"].items()},
    }


def out_of(spec: FinetuneSpec, name: str) -> Path:
    """Where the checkpoint is or will be."""
    return Path(spec.out) if spec.out else run_folder(spec.runs, "finetune", name) / CHECKPOINT


def owner_of(folder: Path) -> str | None:
    """The address of the fine-tuning whose checkpoint a folder holds, if it holds one."""
    return maker_of_folder(folder, "finetune")


def found_again(spec: FinetuneSpec, name: str, done: Record) -> Record | None:
    """A finished run whose checkpoint is still there, copied to --out if that is elsewhere."""
    out, kept = out_of(spec, name), Path(done.summary["checkpoint"])
    if owner_of(out) == name:
        return done
    if owner_of(kept) != name:
        return None
    need_free(spec, name)
    copy_folder(kept, out)
    return replace(done, summary={**done.summary, "checkpoint": str(out)})


def need_free(spec: FinetuneSpec, name: str) -> None:
    """BadSpec when --out holds something else, before any work is done for it."""
    out = Path(spec.out) if spec.out else None
    if out is None or owner_of(out) == name:
        return
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        other = owner_of(out)
        what = f"the checkpoint of another run, {other}" if other else "other files"
        raise BadSpec(f"out {spec.out!r} holds {what}. Choose another folder, or remove it.")
