"""What a fine-tuning leaves: a checkpoint folder with a note of where it comes from."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from cutaway.core.errors import BadSpec
from cutaway.methods.finetune.rows import FinetuneCoordinates
from cutaway.methods.finetune.spec import FinetuneSpec
from cutaway.models.lm import LM
from cutaway.recipe.output import OWNER_FILE, checkpoint_owner, copy_folder
from cutaway.store import files
from cutaway.store.records import run_folder
from cutaway.store.results import Record
from cutaway.training.loop import TrainingResult
from cutaway.training.task_model import TaskModel
from cutaway.training.task_scores import Scores
from cutaway.training.task_split import TaskSplit

CHECKPOINT_FOLDER = "checkpoint"


@dataclass(frozen=True, eq=False)
class FinetuneOutcome:
    """A finished training with all that is told about it."""

    spec: FinetuneSpec
    name: str
    lm: LM
    pupil: TaskModel
    lesson: TaskSplit
    params: Mapping[str, nn.Parameter]
    trained: TrainingResult
    scores: Mapping[str, Scores]

    @property
    def where(self) -> FinetuneCoordinates:
        """The coordinates of its rows."""
        mode, spec = self.pupil.mode, self.spec
        return FinetuneCoordinates(
            self.lm.name, self.lesson.task.name, mode, spec.shots, spec.data_seed
        )


@contextmanager
def written_checkpoint(work: FinetuneOutcome) -> Iterator[dict[str, Path | bytes]]:
    """The checkpoint stands in --out; without it, its files are given for the run's own folder."""
    out = Path(work.spec.out) if work.spec.out else None
    with TemporaryDirectory() as scratch:
        aside = Path(scratch) if out is None else files.temporary_path(out)
        try:
            work.pupil.module.eval()
            work.pupil.save(aside)
            files.write_json(aside / OWNER_FILE, checkpoint_note(work))
            if out is None:
                yield {f"{CHECKPOINT_FOLDER}/{path.name}": path for path in sorted(aside.iterdir())}
            else:
                with files.disk_errors(out):
                    files.remove_folder(out)
                    aside.rename(out)
                yield {}
        finally:
            if out is not None:
                files.discard(aside)


def checkpoint_note(work: FinetuneOutcome) -> dict[str, Any]:
    """What a checkpoint says about where it comes from."""
    form = work.pupil.examples.format
    return {
        "finetune": work.name,
        "base": {"name": work.lm.name, "digest": work.lm.digest},
        "task": work.lesson.task.name,
        "data": work.lesson.training_data,
        "mode": work.pupil.mode,
        "template": form.template,
        "words": list(form.words),
        "trained": sorted(work.params),
        "test": {name: score.mean for name, score in work.scores["tuned"].items()},
    }


def checkpoint_path(spec: FinetuneSpec, name: str) -> Path:
    """Where the checkpoint is or will be."""
    return (
        Path(spec.out) if spec.out else run_folder(spec.runs, "finetune", name) / CHECKPOINT_FOLDER
    )


def reuse_checkpoint(spec: FinetuneSpec, name: str, done: Record) -> Record | None:
    """A finished run whose checkpoint is still there, copied to --out if that is elsewhere."""
    out, kept = checkpoint_path(spec, name), Path(done.summary["checkpoint"])
    if checkpoint_owner(out, "finetune") == name:
        return done
    if checkpoint_owner(kept, "finetune") != name:
        return None
    need_free_output(spec, name)
    copy_folder(kept, out)
    return replace(done, summary={**done.summary, "checkpoint": str(out)})


def need_free_output(spec: FinetuneSpec, name: str) -> None:
    """BadSpec when --out holds something else, before any work is done for it."""
    out = Path(spec.out) if spec.out else None
    if out is None or checkpoint_owner(out, "finetune") == name:
        return
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        other = checkpoint_owner(out, "finetune")
        what = f"the checkpoint of another run, {other}" if other else "other files"
        raise BadSpec(f"out {spec.out!r} holds {what}. Choose another folder, or remove it.")
