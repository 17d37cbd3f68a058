"""One training of the sweep: a regulariser at a strength with a seed, from start to ledger."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from cutaway.console import Console
from cutaway.engine.process_group import process_group
from cutaway.methods.inject.maths.overlap import weight_drift
from cutaway.methods.inject.regularise import RegulariserInputs, make_extra_loss
from cutaway.methods.inject.retain import (
    RetainedScores,
    RetainedSet,
    forgetting_metrics,
    loss_per_text,
    monitored_loss,
    score_retained,
)
from cutaway.methods.inject.rows import InjectCoordinates
from cutaway.methods.inject.skill import (
    ArithmeticSkill,
    dev_exact_match,
    evaluate_skill,
    make_skill_loss,
)
from cutaway.methods.inject.spec import InjectSpec
from cutaway.methods.inject.task_forgetting import (
    RetainedTask,
    TaskAnswers,
    finetune_on_tasks,
    retained_task_rows,
)
from cutaway.methods.inject.trainable import Trainable, full_weights, lora_weights, merged_adapters
from cutaway.models.lm import LM
from cutaway.models.quiet import quiet
from cutaway.models.weight_location import weight_locator
from cutaway.recipe.table import Row
from cutaway.store import files
from cutaway.training.batch_order import make_batch_order
from cutaway.training.loop import TrainingPlan, TrainingResult, train

METADATA_FILE, TASK_FOLDER = "cutaway.json", "tasks"


@dataclass(frozen=True)
class InjectCell:
    """A point of the sweep."""

    regulariser: str
    strength: float
    seed: int
    lora: int = 0
    """The rank of its adapters; 0 trains the weights."""

    @property
    def name(self) -> str:
        """Its folder."""
        rank = f"lora{self.lora}-" if self.lora else ""
        return f"{self.regulariser}-{self.strength:g}-{rank}seed{self.seed}"

    @property
    def label(self) -> str:
        """How its rows call it."""
        return f"{self.regulariser}+lora{self.lora}" if self.lora else self.regulariser


def sweep_cells(spec: InjectSpec) -> list[InjectCell]:
    """The sweep; plain training has no strength and comes once per seed."""
    return [
        InjectCell(regulariser, strength, spec.seed + repeat, rank)
        for rank in spec.lora
        for regulariser, strengths in spec.held.items()
        for strength in strengths
        for repeat in range(spec.repeats)
    ]


@dataclass(frozen=True, eq=False)
class SweepContext:
    """What all cells share."""

    spec: InjectSpec
    name: str
    lm: LM
    skill: ArithmeticSkill
    kept: Sequence[RetainedSet]
    before: RetainedScores
    fisher: Mapping[str, Tensor] | None
    folder: Path
    """Where an unfinished run keeps its things."""
    courses: Sequence[RetainedTask] = ()
    learned: Mapping[int, Mapping[str, TaskAnswers]] = field(default_factory=dict)
    """By seed, what the fine-tuned base answers on each course."""

    def checkpoint(self, cell: InjectCell) -> Path:
        """Where the cell's checkpoint is or will be."""
        root = Path(self.spec.out) if self.spec.out else self.folder / "checkpoints"
        return root / cell.name


def train_cell(work: SweepContext, cell: InjectCell, console: Console) -> tuple[list[Row], Any]:
    """The rows of one training, and a sample of its weights for the maps of weights."""
    spec, lm = work.spec, work.lm
    training = work.folder / "training" / cell.name
    with _trainable_weights(lm, spec, cell) as trainable:
        trained = _train(work, cell, trainable, training, console)
        with merged_adapters(lm, trainable) as weights:
            first = process_group().first
            rows = _measure_cell(work, cell, trainable, weights, trained) if first else []
            rows += _finetune_cell(work, cell, console)
            sample = sample_weight_rows(lm, weights)
            if spec.checkpoints and first:
                save_cell_checkpoint(work, cell, rows)
    if first:
        files.remove_folder(training)
    return rows, sample


def _trainable_weights(
    lm: LM, spec: InjectSpec, cell: InjectCell
) -> AbstractContextManager[Trainable]:
    return lora_weights(lm, cell.lora, cell.seed) if cell.lora else full_weights(lm, spec.weights)


def _train(
    work: SweepContext, cell: InjectCell, trainable: Trainable, folder: Path, console: Console
) -> TrainingResult:
    spec, lm, skill = work.spec, work.lm, work.skill
    lesson = make_skill_loss(lm, skill, spec.regression)
    setting = RegulariserInputs(
        lm, trainable, work.kept, work.fisher, cell.strength, spec.retain_batch, cell.seed
    )
    extra = make_extra_loss(cell.regulariser, setting)
    order = make_batch_order(skill.lessons.rows, spec.batch, cell.seed)
    together = process_group()
    limit = None if spec.stop_loss is None else monitored_loss(lm, list(work.kept)) + spec.stop_loss

    def loss(step: int) -> dict[str, Tensor]:
        rows = order(step)
        mine, weight = lesson.parts(together.share(rows)), together.weight(rows)
        parts = {name: value * weight for name, value in mine.items()}
        if extra is None:
            return {"loss": parts["skill"], **parts}
        held = extra(step)
        return {"loss": parts["skill"] + held, **parts, "penalty": held}

    def evaluate() -> dict[str, float]:
        exact, dev_loss = dev_exact_match(lm, skill), loss_per_text(lm, skill.exam).mean()
        return {
            "exact_match": exact,
            "dev_loss": dev_loss,
            "retained_loss": monitored_loss(lm, list(work.kept)),
            # The loss only decides between equals: it adds less than one answer does.
            "score": exact + 0.001 * float(np.exp(-dev_loss)),
        }

    def stop(found: Mapping[str, float]) -> str | None:
        lost = limit is not None and found["retained_loss"] > limit
        return "retained loss rose too far" if lost else None

    return train(
        trainable.params,
        loss,
        sweep_training_plan(spec, cell.seed),
        folder=folder,
        identity={"run": work.name, "cell": cell.name},
        evaluate=evaluate,
        score="score",
        stop=stop,
        console=console,
    )


def sweep_training_plan(spec: InjectSpec, seed: int) -> TrainingPlan:
    """How the spec says to train."""
    return TrainingPlan(
        steps=spec.steps,
        lr=spec.lr,
        schedule=spec.schedule,
        warmup=min(spec.warmup, spec.steps // 2),
        every=spec.every,
        patience=spec.patience,
        seed=seed,
    )


def inject_coordinates(work: SweepContext, cell: InjectCell) -> InjectCoordinates:
    """The coordinates of a cell's rows."""
    return InjectCoordinates(work.lm.name, work.spec.skill, cell.label, cell.strength, cell.seed)


def _measure_cell(
    work: SweepContext,
    cell: InjectCell,
    trainable: Trainable,
    weights: Mapping[str, Tensor],
    trained: TrainingResult,
) -> list[Row]:
    where, lm = inject_coordinates(work, cell), work.lm
    rows = skill_rows(lm, work.skill, where, "after", cell.seed)
    after = score_retained(lm, list(work.kept), work.spec.seed)
    for one in work.kept:
        found = {**after.metrics(one.name), **forgetting_metrics(work.before, after, one.name)}
        rows += [where.row("after", one.name, metric, value) for metric, value in found.items()]
    rows += curve_rows(where, trained)
    moved = weight_drift(
        weights, {name: trainable.anchor[name] for name in weights}, weight_locator(lm)
    )
    return rows + [
        where.row("drift", f"{layer}/{module}", "drift", value)
        for (layer, module), value in moved.items()
    ]


def _finetune_cell(work: SweepContext, cell: InjectCell, console: Console) -> list[Row]:
    """The fine-tunes of this model, beside those of the base."""
    if not work.courses:
        return []
    after = finetune_on_tasks(
        work.lm, work.courses, cell.name, cell.seed, work.folder / TASK_FOLDER, console
    )
    return retained_task_rows(
        work.courses, inject_coordinates(work, cell), after, work.learned[cell.seed]
    )


def skill_rows(
    lm: LM, skill: ArithmeticSkill, where: InjectCoordinates, stage: str, seed: int
) -> list[Row]:
    """Exact match, log-RMSE and undecodable answers, on test and beyond, and by group."""
    scores, groups = evaluate_skill(lm, skill, seed=seed)
    rows = [
        where.row(stage, f"{where.skill} {name}", metric, value)
        for name, score in scores.items()
        for metric, value in score.metrics().items()
    ]
    return rows + [
        where.row(stage, f"{where.skill} {group}", "exact_match", value)
        for group, value in groups.items()
    ]


def curve_rows(where: InjectCoordinates, trained: TrainingResult) -> list[Row]:
    """The learning curve, one row per evaluation and number."""
    rows = [
        where.row(
            "training", "curve", metric, float("nan") if value is None else value, step=row["step"]
        )
        for row in trained.curve
        for metric, value in row.items()
        if metric != "step"
    ]
    ends = {"best_step": trained.best_step, "steps": trained.curve[-1]["step"]}
    return rows + [
        where.row("training", trained.stopped, metric, float(value))
        for metric, value in ends.items()
    ]


def sample_weight_rows(lm: LM, weights: Mapping[str, Tensor], *, most: int = 60) -> dict[str, Any]:
    """Some rows of an attention weight of the first, middle and last block, for a map of them."""
    place = weight_locator(lm)
    found: dict[str, Any] = {}
    for layer in sorted({1, (lm.layers + 1) // 2, lm.layers}):
        names = [n for n, w in weights.items() if place(n) == (layer, "attn") and w.ndim == 2]
        if names:
            rows = weights[names[0]].float()
            chosen = np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int)
            found[str(layer)] = rows[chosen].cpu().numpy().round(6).tolist()
    return found


def save_cell_checkpoint(work: SweepContext, cell: InjectCell, rows: Sequence[Row]) -> None:
    """A folder that transformers loads, with a note of where it comes from; whole or not at all."""
    place = work.checkpoint(cell)
    aside = files.temporary_path(place)
    files.make_folder(place.parent)
    try:
        with quiet():
            work.lm.module.save_pretrained(aside)
            work.lm.tokenizer.save_pretrained(aside)
        files.write_json(aside / METADATA_FILE, checkpoint_metadata(work, cell, rows))
        with files.disk_errors(place):
            files.remove_folder(place)
            aside.rename(place)
    finally:
        files.discard(aside)


def checkpoint_metadata(
    work: SweepContext, cell: InjectCell, rows: Sequence[Row]
) -> dict[str, Any]:
    """What a checkpoint says about where it comes from."""
    kept = [r for r in rows if r["stage"] == "after" and r["metric"] in ("exact_match", "lm_loss")]
    return {
        "inject": work.name,
        "base": {"name": work.lm.name, "digest": work.lm.digest},
        "skill": work.skill.name,
        "regulariser": cell.regulariser,
        "strength": cell.strength,
        "seed": cell.seed,
        "lora": cell.lora,
        "found": {f"{r['probe']}: {r['metric']}": r["value"] for r in kept},
    }
