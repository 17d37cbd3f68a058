"""One training of the sweep: a regulariser at a strength with a seed, trained and measured."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from cutaway.console import Console
from cutaway.core.params import weight_drift
from cutaway.engine.process_group import process_group
from cutaway.methods.inject.checkpoints import CHECKPOINT_FOLDER, save_checkpoint
from cutaway.methods.inject.regularise import RegulariserInputs, make_extra_loss
from cutaway.methods.inject.retain import (
    RetainedScores,
    RetainedSet,
    forgetting_metrics,
    loss_per_text,
    monitored_loss,
    score_retained,
)
from cutaway.methods.inject.rows import InjectCoordinates, curve_rows
from cutaway.methods.inject.samples import predictions
from cutaway.methods.inject.skill import (
    QuestionSkill,
    answer_tests,
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
from cutaway.methods.inject.weight_samples import WeightSample, sample_weights
from cutaway.models.lm import LM
from cutaway.models.weight_location import weight_locator
from cutaway.recipe.result import Row
from cutaway.store import files
from cutaway.store.samples import SamplePieces
from cutaway.training.batch_order import make_batch_order
from cutaway.training.loop import TrainingPlan, TrainingResult, train

TASK_FOLDER = "tasks"


@dataclass(frozen=True)
class InjectCell:
    """One training of the sweep."""

    regulariser: str
    strength: float
    seed: int
    lora: int = 0
    """The rank of its adapters; 0 trains the weights themselves."""

    @property
    def name(self) -> str:
        """The name of its folder and of its piece."""
        rank = f"lora{self.lora}-" if self.lora else ""
        return f"{self.regulariser}-{self.strength:g}-{rank}seed{self.seed}"

    @property
    def label(self) -> str:
        """Its value in the column `regulariser`."""
        return f"{self.regulariser}+lora{self.lora}" if self.lora else self.regulariser


def sweep_cells(spec: InjectSpec) -> list[InjectCell]:
    """All trainings of a spec; plain training has no strength and comes once per seed."""
    return [
        InjectCell(regulariser, strength, spec.seed + repeat, rank)
        for rank in spec.lora
        for regulariser, strengths in spec.strengths_by_regulariser.items()
        for strength in strengths
        for repeat in range(spec.repeats)
    ]


@dataclass(frozen=True, eq=False)
class InjectRequest:
    """A resolved spec: the model, the skill, the retained sets and the retained tasks."""

    spec: InjectSpec
    lm: LM
    skill: QuestionSkill
    retained: list[RetainedSet]
    tasks: list[RetainedTask]
    fisher_digest: str | None

    @property
    def identity(self) -> dict[str, Any]:
        """Digests of the weights and of all data."""
        return {
            "model": self.lm.identity,
            "data": [self.skill.digest, *(one.digest for one in self.retained)],
            "tasks": [task.split.digest for task in self.tasks],
            "fisher": self.fisher_digest,
        }


@dataclass(frozen=True, eq=False)
class SweepContext:
    """What all trainings of a run share: the request and what was measured before training."""

    request: InjectRequest
    address: str
    folder: Path
    """The folder of the unfinished run."""
    before: RetainedScores
    fisher: Mapping[str, Tensor] | None
    fisher_scale: float = 1.0
    """What the Fisher is divided by."""
    base_answers: Mapping[int, Mapping[str, TaskAnswers]] = field(default_factory=dict)
    """By seed and task, what the fine-tuned base model answers."""

    @property
    def samples(self) -> SamplePieces | None:
        """Where predictions go; None unless they were asked for."""
        return SamplePieces(self.folder / "samples") if self.request.spec.samples else None

    def checkpoint(self, cell: InjectCell) -> Path:
        """The folder of the cell's checkpoint."""
        out = self.request.spec.out
        return (Path(out) if out else self.folder / CHECKPOINT_FOLDER) / cell.name

    def coordinates(self, cell: InjectCell) -> InjectCoordinates:
        """The columns that all rows of a cell share."""
        skill = self.request.skill.name
        return InjectCoordinates(self.request.lm.name, skill, cell.label, cell.strength, cell.seed)


def train_cell(
    context: SweepContext, cell: InjectCell, console: Console
) -> tuple[list[Row], WeightSample]:
    """Train one cell and measure it: its rows, and a sample of its weights.

    The model has its old weights again afterwards. Only rank 0 measures and saves.
    """
    spec, lm = context.request.spec, context.request.lm
    folder, first = context.folder / "training" / cell.name, process_group().first
    with _trainable_weights(lm, spec, cell, folder) as trainable:
        trained = _train(context, cell, trainable, folder, console)
        with merged_adapters(lm, trainable) as weights:
            rows = _measure_cell(context, cell, trainable, weights, trained) if first else []
            rows += _finetune_cell(context, cell, console)
            sample = sample_weights(cell.name, lm, weights)
            if spec.checkpoints and first:
                metadata = checkpoint_metadata(context, cell, rows)
                save_checkpoint(lm, context.checkpoint(cell), metadata)
    if first:
        files.remove_folder(folder)
    return rows, sample


def _trainable_weights(
    lm: LM, spec: InjectSpec, cell: InjectCell, folder: Path
) -> AbstractContextManager[Trainable]:
    if cell.lora:
        return lora_weights(lm, cell.lora, cell.seed)
    return full_weights(lm, spec.weights, folder)


def _train(
    context: SweepContext, cell: InjectCell, trainable: Trainable, folder: Path, console: Console
) -> TrainingResult:
    request, group = context.request, process_group()
    spec, lm, skill, retained = request.spec, request.lm, request.skill, request.retained
    skill_loss = make_skill_loss(lm, skill, spec.regression)
    inputs = RegulariserInputs(
        lm,
        trainable,
        retained,
        context.fisher,
        context.fisher_scale,
        cell.strength,
        spec.retain_batch,
        cell.seed,
    )
    extra = make_extra_loss(cell.regulariser, inputs)
    order = make_batch_order(skill.train_examples.rows, spec.batch, cell.seed)
    limit = None if spec.stop_loss is None else monitored_loss(lm, retained) + spec.stop_loss

    def loss(step: int) -> dict[str, Tensor]:
        rows = order(step)
        weight = group.weight(rows)
        parts = {n: v * weight for n, v in skill_loss.parts(group.share(rows)).items()}
        if extra is None:
            return {"loss": parts["skill"], **parts}
        penalty = extra(step)
        return {"loss": parts["skill"] + penalty, **parts, "penalty": penalty}

    def stop(metrics: Mapping[str, float]) -> str | None:
        too_high = limit is not None and metrics["retained_loss"] > limit
        return "retained loss rose too far" if too_high else None

    return train(
        trainable.params,
        loss,
        sweep_training_plan(spec, cell.seed),
        folder=folder,
        identity={"run": context.address, "cell": cell.name},
        evaluate=lambda: _evaluate(request),
        score="score",
        stop=stop,
        console=console,
    )


def _evaluate(request: InjectRequest) -> dict[str, float]:
    """The metrics of an evaluation step, on dev problems and monitored retained texts."""
    lm, skill = request.lm, request.skill
    exact, dev_loss = dev_exact_match(lm, skill), loss_per_text(lm, skill.dev_examples).mean()
    return {
        "exact_match": exact,
        "dev_loss": dev_loss,
        "retained_loss": monitored_loss(lm, request.retained),
        # The loss only breaks ties: it adds less than one more solved problem does.
        "score": exact + 0.001 * float(np.exp(-dev_loss)),
    }


def sweep_training_plan(spec: InjectSpec, seed: int) -> TrainingPlan:
    """The training plan in a spec."""
    return TrainingPlan(
        steps=spec.steps,
        lr=spec.lr,
        schedule=spec.schedule,
        warmup=min(spec.warmup, spec.steps // 2),
        every=spec.every,
        patience=spec.patience,
        seed=seed,
    )


def _measure_cell(
    context: SweepContext,
    cell: InjectCell,
    trainable: Trainable,
    weights: Mapping[str, Tensor],
    trained: TrainingResult,
) -> list[Row]:
    coordinates, request = context.coordinates(cell), context.request
    rows = skill_rows(context, coordinates, "after", cell.seed)
    after = score_retained(request.lm, request.retained, request.spec.seed)
    for one in request.retained:
        lost = forgetting_metrics(context.before, after, one.name)
        rows += coordinates.rows("after", one.name, {**after.metrics(one.name), **lost})
    rows += curve_rows(coordinates, trained)
    anchor = {name: trainable.anchor[name] for name in weights}
    drift = weight_drift(weights, anchor, weight_locator(request.lm))
    return rows + coordinates.weight_rows("drift", "drift", drift)


def _finetune_cell(context: SweepContext, cell: InjectCell, console: Console) -> list[Row]:
    """Fine-tune the trained model on every retained task and compare it with the base."""
    tasks = context.request.tasks
    if not tasks:
        return []
    answers, _ = finetune_on_tasks(
        context.request.lm, tasks, cell.name, cell.seed, context.folder / TASK_FOLDER, console
    )
    before = context.base_answers[cell.seed]
    return retained_task_rows(tasks, context.coordinates(cell), answers, before)


def skill_rows(
    context: SweepContext, coordinates: InjectCoordinates, stage: str, seed: int
) -> list[Row]:
    """Exact match, undecodable answers and, of numbers, log-RMSE on every test set; by group."""
    tested = answer_tests(context.request.lm, context.request.skill)
    scores, groups = evaluate_skill(tested, seed=seed)
    if context.samples is not None:
        context.samples.put(f"{stage}/{coordinates}", predictions(coordinates, stage, tested))
    rows = [
        row
        for name, score in scores.items()
        for row in coordinates.rows(stage, f"{coordinates.skill} {name}", score.metrics())
    ]
    return rows + [
        coordinates.row(stage, f"{coordinates.skill} {group}", "exact_match", value)
        for group, value in groups.items()
    ]


def checkpoint_metadata(
    context: SweepContext, cell: InjectCell, rows: Sequence[Row]
) -> dict[str, Any]:
    """Where a checkpoint comes from, and its main scores."""
    main = [r for r in rows if r["stage"] == "after" and r["metric"] in ("exact_match", "lm_loss")]
    request = context.request
    return {
        "inject": context.address,
        "base": {"name": request.lm.name, "digest": request.lm.digest},
        "skill": request.skill.source,
        "regulariser": cell.regulariser,
        "strength": cell.strength,
        "seed": cell.seed,
        "lora": cell.lora,
        "found": {f"{r['probe']}: {r['metric']}": r["value"] for r in main},
    }
