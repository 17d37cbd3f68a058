"""`cutaway inject`: train a skill with several regularisers and measure what is forgotten."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from cutaway.console import Console
from cutaway.core.errors import BadSpec
from cutaway.core.spec import address
from cutaway.engine.process_group import process_group
from cutaway.extract.model_handle import training_resources
from cutaway.methods.inject.answers import right_answers
from cutaway.methods.inject.cells import (
    TASK_FOLDER,
    InjectCell,
    InjectRequest,
    SweepContext,
    skill_rows,
    sweep_cells,
    train_cell,
)
from cutaway.methods.inject.checkpoints import CHECKPOINT_FOLDER, SweepCheckpoints
from cutaway.methods.inject.cost import sweep_cost
from cutaway.methods.inject.fisher_file import load_fisher
from cutaway.methods.inject.fisher_overlap import FisherOverlap, retained_fisher
from cutaway.methods.inject.maths.penalty import fisher_mean
from cutaway.methods.inject.pareto import pareto_points
from cutaway.methods.inject.retain import read_retained_sets, score_retained
from cutaway.methods.inject.rows import DETAILS_FILE, InjectCoordinates, inject_frame
from cutaway.methods.inject.samples import splits_table
from cutaway.methods.inject.skill import read_skill, tested_sets
from cutaway.methods.inject.spec import InjectSpec
from cutaway.methods.inject.task_forgetting import (
    TaskAnswers,
    finetune_on_tasks,
    read_retained_tasks,
    retained_task_rows,
    task_baselines,
)
from cutaway.methods.inject.verdict import inject_verdict
from cutaway.methods.inject.weight_samples import WeightSample, sample_weights, weight_maps
from cutaway.models.lm import LM, model_facts
from cutaway.recipe.cost import Estimate, SampleSize
from cutaway.recipe.life_cycle import Context, Outcome, Run
from cutaway.recipe.objects import Objects
from cutaway.recipe.open_for_spec import open_spec_model
from cutaway.recipe.output import checkpoint_owner
from cutaway.recipe.result import Row
from cutaway.recipe.worker_pieces import (
    check_same_run,
    local_spec,
    run_on_workers,
    runs_on_workers,
    sendable,
)
from cutaway.store import files
from cutaway.store.progress import Progress
from cutaway.store.results import run_progress

OUTPUT = SweepCheckpoints()
# Copies of the weights in memory: weights, gradients, two of the optimiser, anchor, Fisher.
TRAINING_COPIES = 6
BEFORE, TASKS = "before", "tasks"


def resolve(spec: InjectSpec, context: Context) -> InjectRequest:
    """The model, the skill, the retained texts and tasks."""
    objects = context.objects
    lm = open_spec_model(spec, objects)
    lm.need_head()
    if lm.dtype != "float32":
        raise BadSpec(f"dtype {lm.dtype!r} loses small gradients: inject trains in float32.")
    fisher = None if spec.fisher is None else load_fisher(spec.fisher, lm)
    return InjectRequest(
        spec,
        lm,
        read_skill(lm, spec, objects),
        read_retained_sets(lm, spec, objects),
        read_retained_tasks(lm, spec, objects),
        None if fisher is None else fisher.digest,
    )


def sample_size(request: InjectRequest) -> SampleSize:
    """One row per test question, before training and after each."""
    questions = sum(map(len, tested_sets(request.skill).values()))
    return SampleSize((1 + len(sweep_cells(request.spec))) * questions)


def estimate(request: InjectRequest) -> list[Estimate]:
    """The cost of the sweep, from a few training steps."""
    return [sweep_cost(request)]


def measure(request: InjectRequest, run: Run) -> Outcome | None:
    """Every cell trained and measured; only rank 0 returns the outcome."""
    context, overlap = prepare_sweep(request, run.address, run.progress, run.console)
    train_sweep(context, run.progress, run.console, run.objects)
    return sweep_outcome(context, run.progress, overlap) if process_group().first else None


def prepare_sweep(
    request: InjectRequest, name: str, progress: Progress, console: Console
) -> tuple[SweepContext, FisherOverlap | None]:
    """Everything measured before training: skill, retained texts and tasks, Fisher information."""
    lm, group, folder = request.lm, process_group(), Path(progress.folder)
    for one in request.retained:
        if one.dropped:
            console.print(f"Dropped {one.dropped} texts of {one.name} with fewer than two tokens.")
    before = score_retained(lm, request.retained, request.spec.seed)
    # The first process computes and saves the Fisher information, the others read it.
    fisher, overlap = group.rank0_first(lambda: retained_fisher(request, folder, console))
    fisher, scale = penalty_fisher(fisher, request.spec, lm)
    context = SweepContext(request, name, folder, before, fisher, scale)
    if group.first and BEFORE not in progress.done():
        coordinates = InjectCoordinates(lm.name, request.skill.name)
        rows = skill_rows(context, coordinates, "before", request.spec.seed)
        for one in request.retained:
            rows += coordinates.rows("before", one.name, before.metrics(one.name))
        progress.put(BEFORE, rows, [sample_weights("base", lm, lm.params())])
    return finetune_base(context, progress, console), overlap


def penalty_fisher(
    fisher: Mapping[str, Tensor] | None, spec: InjectSpec, lm: LM
) -> tuple[Mapping[str, Tensor] | None, float]:
    """The Fisher information on the model's device and what ewc divides it by; None without ewc."""
    if fisher is None or "ewc" not in spec.strengths_by_regulariser:
        return None, 1.0
    here = {name: value.to(lm.device) for name, value in fisher.items()}
    return here, fisher_mean(here) if spec.fisher_scale == "mean" else 1.0


def finetune_base(context: SweepContext, progress: Progress, console: Console) -> SweepContext:
    """The base model fine-tuned on every retained task, once per seed."""
    request = context.request
    if not request.tasks:
        return context
    folder = context.folder / TASK_FOLDER
    answers: dict[int, dict[str, TaskAnswers]] = {}
    samples: list[WeightSample] = []
    rows: list[Row] = []
    for seed in sorted({cell.seed for cell in sweep_cells(request.spec)}):
        answers[seed], weights = finetune_on_tasks(
            request.lm, request.tasks, f"base-seed{seed}", seed, folder, console
        )
        samples = samples or weights
        coordinates = InjectCoordinates(request.lm.name, request.skill.name, seed=seed)
        rows += retained_task_rows(request.tasks, coordinates, answers[seed])
    if process_group().first:
        progress.put(TASKS, rows, samples)
    return replace(context, base_answers=answers)


@dataclass(frozen=True, eq=False)
class InjectWorker:
    """What a worker needs to train a cell; it opens the request itself."""

    spec: InjectSpec
    objects: Objects
    address: str

    @cached_property
    def context(self) -> SweepContext:
        """What all cells share, prepared once per worker."""
        request = resolve(self.spec, Context(objects=self.objects))
        check_same_run(address(self.spec, **request.identity), self.address)
        progress = run_progress(self.spec.runs, "inject", self.address)
        return prepare_sweep(request, self.address, progress, Console(quiet=True))[0]

    def __call__(self, cell: InjectCell) -> tuple[list[Row], WeightSample]:
        """The cell's rows and a sample of its weights; its checkpoint is saved."""
        return train_cell(self.context, cell, Console(quiet=True))


def train_sweep(
    context: SweepContext, progress: Progress, console: Console, objects: Objects | None = None
) -> None:
    """Every cell that is not done yet, trained here or by the engine's workers."""
    spec, done = context.request.spec, progress.done()

    def lost(cell: InjectCell) -> bool:
        owner = checkpoint_owner(context.checkpoint(cell), "inject")
        return spec.checkpoints and owner != context.address

    todo = [cell for cell in sweep_cells(spec) if cell.name not in done or lost(cell)]
    if todo and runs_on_workers(spec.engine, objects, console):
        trained = run_on_workers(
            spec.engine,
            InjectWorker(local_spec(spec), sendable(objects), context.address),
            todo,
            key=lambda cell: cell.name,
            needs=training_resources(spec.engine, spec, context.request.lm, copies=TRAINING_COPIES),
            kept=context.folder,
            console=console,
        )
    else:
        trained = _train_locally(context, todo, console)
    for cell, (rows, sample) in trained:
        if process_group().first:
            progress.put(cell.name, rows, [sample])


def _train_locally(
    context: SweepContext, todo: list[InjectCell], console: Console
) -> Iterator[tuple[InjectCell, tuple[list[Row], WeightSample]]]:
    for number, cell in enumerate(todo, 1):
        console.print(f"Training {number} of {len(todo)}: {cell.name}")
        yield cell, train_cell(context, cell, console)


def sweep_outcome(
    context: SweepContext, progress: Progress, overlap: FisherOverlap | None
) -> Outcome:
    """The rows, summary and files of the run."""
    request, cells = context.request, sweep_cells(context.request.spec)
    spec, skill = request.spec, request.skill
    keys = [BEFORE, *([TASKS] if request.tasks else []), *(cell.name for cell in cells)]
    rows = progress.rows(keys) + ([] if overlap is None else overlap.rows)
    maps = weight_maps(progress.details(keys), seed=spec.seed) if spec.clash else []
    details = {"tops": [] if overlap is None else overlap.tops, "maps": maps}
    saved: dict[str, Path | bytes] = {DETAILS_FILE: files.json_bytes(details)}
    if spec.checkpoints and spec.out is None:
        for cell in cells:
            for path in sorted(context.checkpoint(cell).iterdir()):
                saved[f"{CHECKPOINT_FOLDER}/{cell.name}/{path.name}"] = path
    tasks = [task.split.texts for task in request.tasks]
    return Outcome(
        inject_frame(rows),
        summary=sweep_summary(request, rows),
        baselines=sweep_baselines(context, rows),
        model=model_facts(request.lm),
        data={
            "name": skill.source,
            "rows": len(skill.train),
            "digest": skill.digest,
            "retained": [
                {"name": r.name, "rows": r.rows, "digest": r.digest} for r in request.retained
            ],
            "tasks": [{"name": t.name, "rows": len(t), "digest": t.digest} for t in tasks],
        },
        files=saved,
        splits=splits_table(skill, request.retained, request.tasks),
    )


def sweep_summary(request: InjectRequest, rows: Sequence[Row]) -> dict[str, Any]:
    """The Pareto points, the verdict, and what was dropped."""
    spec, skill = request.spec, request.skill
    points, before = pareto_points(rows), base_exact_match(rows, skill.name)
    return {
        "verb": "inject",
        "skill": skill.source,
        "exact_match_before": before,
        "pareto": points,
        "cells": [cell.name for cell in sweep_cells(spec)],
        "checkpoints": (spec.out or CHECKPOINT_FOLDER) if spec.checkpoints else None,
        "train_rows": len(skill.train),
        "test_rows": len(skill.test),
        "masks": skill.answer_format.masks,
        "left_out": {one.name: one.dropped for one in request.retained},
        "notes": list(skill.notes),
        "verdict": inject_verdict(
            points, before, skill.name, sum(one.rows for one in request.retained)
        ),
    }


def base_exact_match(rows: Sequence[Row], skill: str) -> float:
    """Exact match on the test questions before training."""
    key = ("before", f"{skill} test", "exact_match")
    return float(next(r["value"] for r in rows if (r["stage"], r["probe"], r["metric"]) == key))


def sweep_baselines(context: SweepContext, rows: Sequence[Row]) -> dict[str, Any]:
    """The base model, the most frequent answer, and the fine-tuned base."""
    request = context.request
    train, test = (
        right_answers(request.lm, texts) for texts in (request.skill.train, request.skill.test)
    )
    frequent = Counter(train.tolist()).most_common(1)[0][0]
    hits = [answer == frequent for answer in test.tolist()]
    before = [r for r in rows if r["stage"] == "before" and r["metric"] == "lm_loss"]
    exact = base_exact_match(rows, request.skill.name)
    return {
        "base": {"exact_match": exact, "lm_loss": {r["probe"]: r["value"] for r in before}},
        "most frequent answer": {"exact_match": float(np.mean(hits))},
        "fine-tuned": task_baselines(request.tasks, context.base_answers),
    }
