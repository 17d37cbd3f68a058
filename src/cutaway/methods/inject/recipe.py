"""`cutaway inject`: train a skill in, hold the rest, and say what both cost."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from cutaway.console import Console
from cutaway.core.digest import digest_text
from cutaway.core.errors import BadSpec
from cutaway.core.spec import address, build_spec
from cutaway.engine.process_group import process_group
from cutaway.extract.model_handle import training_resources
from cutaway.methods.inject.cells import (
    TASK_FOLDER,
    InjectCell,
    SweepContext,
    sample_weight_rows,
    skill_rows,
    sweep_cells,
    train_cell,
)
from cutaway.methods.inject.cost import TrainingCost, sweep_cost
from cutaway.methods.inject.fisher import DETAILS_FILE, METHOD
from cutaway.methods.inject.fisher_file import load_fisher
from cutaway.methods.inject.fisher_overlap import FisherOverlap, retained_fisher
from cutaway.methods.inject.maths.penalty import normalise_fisher
from cutaway.methods.inject.maths.weight_maps import WeightProjection, project_rows
from cutaway.methods.inject.pareto import inject_verdict, pareto_points
from cutaway.methods.inject.retain import RetainedSet, read_retained_sets, score_retained
from cutaway.methods.inject.rows import InjectCoordinates, inject_frame
from cutaway.methods.inject.skill import ArithmeticSkill, read_arithmetic_skill
from cutaway.methods.inject.spec import InjectSpec
from cutaway.methods.inject.task_forgetting import (
    RetainedTask,
    finetune_on_tasks,
    read_retained_tasks,
    retained_task_rows,
    task_baselines,
)
from cutaway.models.lm import LM, model_facts
from cutaway.recipe.life_cycle import on_rank0
from cutaway.recipe.objects import Objects, name_objects
from cutaway.recipe.open_for_spec import open_spec_model
from cutaway.recipe.output import checkpoint_owner, restore_checkpoint
from cutaway.recipe.provenance import CostMeter, measure_cost, provenance
from cutaway.recipe.result import Result
from cutaway.recipe.table import Row
from cutaway.recipe.worker_pieces import (
    check_same_run,
    local_spec,
    run_on_workers,
    runs_on_workers,
    sendable,
)
from cutaway.store import files
from cutaway.store.results import Progress, Record, find_record, run_progress, save_record

FISHER_FOLDER, CHECKPOINT_FOLDER = "fishers", "checkpoints"
# Weights, gradients, two of the optimiser, the anchor, the Fisher.
TRAINING_COPIES = 6
WEIGHT_PROJECTIONS: tuple[WeightProjection, ...] = ("pca", "tsne")


def inject(*, quiet: bool = False, **options: Any) -> Result:
    """Teach a model a skill; `model`, `data`, `retain`, `retain_tasks` may be given as objects."""
    fields = ("model", "data", "retain", "retain_tasks")
    named, objects = name_objects(options, fields, single=("model", "data"))
    return run(build_spec(InjectSpec, named), console=Console(quiet=quiet), objects=objects)


def run(
    spec: InjectSpec, *, console: Console | None = None, objects: Objects | None = None
) -> Result:
    """Every cell of the sweep trained, measured and kept; the model itself stays as it was."""
    console = console or Console(quiet=True)
    process_group(spec.device)
    asked = read_inject_inputs(spec, objects)
    done = find_record(spec.runs, METHOD, asked.name)
    if done is not None and (again := restore_checkpoints(spec, done)) is not None:
        return Result(again)
    pieces = run_progress(spec.runs, METHOD, asked.name)
    with measure_cost() as meter:
        work, found = prepare_sweep(spec, asked, pieces, console)
        work = finetune_base(work, asked.courses, pieces, console)
        run_sweep(work, pieces, console, objects)
    return on_rank0(lambda: save_sweep(work, pieces, found, meter), spec.runs, METHOD, asked.name)


@dataclass(frozen=True, eq=False)
class InjectInputs:
    """What a spec names, opened and read, and the run's address."""

    name: str
    lm: LM
    skill: ArithmeticSkill
    kept: list[RetainedSet]
    courses: list[RetainedTask]


def read_inject_inputs(spec: InjectSpec, objects: Objects | None = None) -> InjectInputs:
    """The model, the skill, the retained texts and sets."""
    lm = open_spec_model(spec, objects)
    need_trainable(lm, spec)
    skill, kept = read_arithmetic_skill(lm, spec, objects), read_retained_sets(lm, spec, objects)
    courses = read_retained_tasks(lm, spec, objects)
    given = None if spec.fisher is None else load_fisher(spec.fisher, lm)
    name = address(
        spec,
        model=lm.identity,
        data=[skill.digest, *(one.digest for one in kept)],
        tasks=[course.lesson.digest for course in courses],
        fisher=None if given is None else given.digest,
    )
    return InjectInputs(name, lm, skill, kept, courses)


def need_trainable(lm: LM, spec: InjectSpec) -> None:
    """BadSpec for what can't be trained."""
    lm.need_head()
    if lm.dtype != "float32":
        raise BadSpec(f"dtype {lm.dtype!r} loses small gradients: inject trains in float32.")
    if spec.out is not None and Path(spec.out).is_file():
        raise BadSpec(f"out must be a folder for the checkpoints, {spec.out!r} is a file.")


def restore_checkpoints(spec: InjectSpec, done: Record) -> Record | None:
    """A finished run with its own checkpoints at --out, copied if elsewhere; None if lost."""
    if not spec.checkpoints or spec.out is None:
        return done
    out, told = Path(spec.out), done.summary
    kept = (done.path / CHECKPOINT_FOLDER, Path(str(told["checkpoints"])))

    def there() -> bool:
        who = ("inject", done.address)
        return all(restore_checkpoint(out / c, *who, [k / c for k in kept]) for c in told["cells"])

    return (
        replace(done, summary={**told, "checkpoints": spec.out})
        if process_group().broadcast(there)
        else None
    )


def prepare_sweep(
    spec: InjectSpec, asked: InjectInputs, pieces: Progress, console: Console
) -> tuple[SweepContext, FisherOverlap | None]:
    """What was there before any training: scores, ledger, Fishers."""
    lm, skill, kept, together = asked.lm, asked.skill, asked.kept, process_group()
    for one in kept:
        if one.left_out:
            console.print(
                f"{one.left_out} texts of {one.name} have less than two tokens: left out."
            )
    before = score_retained(lm, kept, spec.seed)
    folder = Path(pieces.folder)
    # The first process makes and keeps them, the others read them.
    fisher, found = together.rank0_first(
        lambda: retained_fisher(lm, spec, skill, kept, folder / FISHER_FOLDER, console)
    )
    work = SweepContext(
        spec, asked.name, lm, skill, kept, before, scale_fisher(fisher, spec, lm), folder
    )
    if together.first and "before" not in pieces.done():
        where = InjectCoordinates(lm.name, spec.skill, "-", None, None)
        rows = skill_rows(lm, skill, where, "before", spec.seed)
        for one in kept:
            metrics = before.metrics(one.name)
            rows += [where.row("before", one.name, metric, v) for metric, v in metrics.items()]
        pieces.put("before", rows)
        save_weight_sample(folder, "base", sample_weight_rows(lm, lm.params()))
    return work, found


def scale_fisher(
    fisher: Mapping[str, Tensor] | None, spec: InjectSpec, lm: LM
) -> Mapping[str, Tensor] | None:
    """The Fisher as ewc uses it, where the model is; None where nothing does."""
    if fisher is None or "ewc" not in spec.held:
        return None
    here = {name: value.to(lm.device) for name, value in fisher.items()}
    return normalise_fisher(here) if spec.fisher_scale == "mean" else here


def finetune_base(
    work: SweepContext, courses: list[RetainedTask], pieces: Progress, console: Console
) -> SweepContext:
    """What the base learns of every task, once for each seed."""
    if not courses:
        return work
    folder, seeds = (
        work.folder / TASK_FOLDER,
        sorted({cell.seed for cell in sweep_cells(work.spec)}),
    )

    def look(task: str) -> None:
        save_weight_sample(
            work.folder, f"{task} fine-tuned", sample_weight_rows(work.lm, work.lm.params())
        )

    learned = {
        seed: finetune_on_tasks(work.lm, courses, f"base-seed{seed}", seed, folder, console,
                    look if seed == seeds[0] and process_group().first else None)
        for seed in seeds
    }  # fmt: skip
    rows = [
        row
        for seed, answers in learned.items()
        for row in retained_task_rows(
            courses, InjectCoordinates(work.lm.name, work.spec.skill, "-", None, seed), answers
        )
    ]
    if process_group().first:
        pieces.put("tasks", rows)
    return replace(work, courses=courses, learned=learned)


@dataclass(frozen=True, eq=False)
class InjectWorker:
    """What a worker needs to train a cell: the request; all else it reads, or is kept already."""

    spec: InjectSpec
    objects: Objects
    name: str

    @cached_property
    def work(self) -> SweepContext:
        """Everything that cells share, made ready once per worker."""
        asked, quiet = read_inject_inputs(self.spec, self.objects), Console(quiet=True)
        check_same_run(asked.name, self.name)
        pieces = run_progress(self.spec.runs, METHOD, self.name)
        work, _ = prepare_sweep(self.spec, asked, pieces, quiet)
        return finetune_base(work, asked.courses, pieces, quiet)

    def __call__(self, cell: InjectCell) -> tuple[list[Row], Any]:
        """The cell's rows and the sample of its weights; its checkpoint is where it should be."""
        return train_cell(self.work, cell, Console(quiet=True))


def run_sweep(
    work: SweepContext, pieces: Progress, console: Console, objects: Objects | None = None
) -> None:
    """Every cell that isn't done yet, here or by the engine's workers."""
    spec, done, cells = work.spec, pieces.done(), sweep_cells(work.spec)
    todo = [
        cell
        for cell in cells
        if cell.name not in done
        or (spec.checkpoints and checkpoint_owner(work.checkpoint(cell), "inject") != work.name)
    ]
    if todo and runs_on_workers(spec.engine, objects, console):
        hand = InjectWorker(local_spec(spec), sendable(objects), work.name)
        needs = training_resources(spec.engine, spec, work.lm, copies=TRAINING_COPIES)
        found = run_on_workers(
            spec.engine, hand, todo, key=lambda cell: cell.name, needs=needs, kept=work.folder,
            console=console,
        )  # fmt: skip
    else:
        found = _train_locally(work, todo, console)
    for cell, (rows, sample) in found:
        if process_group().first:
            save_weight_sample(work.folder, cell.name, sample)
            pieces.put(cell.name, rows)


def _train_locally(
    work: SweepContext, todo: list[InjectCell], console: Console
) -> Iterator[tuple[InjectCell, tuple[list[Row], Any]]]:
    for number, cell in enumerate(todo, 1):
        console.print(f"Training {number} of {len(todo)}: {cell.name}")
        yield cell, train_cell(work, cell, console)


def save_sweep(
    work: SweepContext, pieces: Progress, found: FisherOverlap | None, meter: CostMeter
) -> Result:
    """The run, saved whole."""
    spec, lm, cells = work.spec, work.lm, sweep_cells(work.spec)
    before = ["before", *(["tasks"] if work.courses else [])]
    rows = pieces.rows([*before, *(cell.name for cell in cells)])
    rows += [] if found is None else found.rows
    kept: dict[str, Path | bytes] = {DETAILS_FILE: files.json_bytes(figure_details(work, found))}
    if spec.checkpoints and spec.out is None:
        for cell in cells:
            for path in sorted(work.checkpoint(cell).iterdir()):
                kept[f"{CHECKPOINT_FOLDER}/{cell.name}/{path.name}"] = path
    sets = [{"name": one.name, "rows": one.rows, "digest": one.digest} for one in work.kept]
    tasks = [course.lesson.texts for course in work.courses]
    record = save_record(
        spec.runs,
        method=METHOD,
        address=work.name,
        spec=spec,
        summary=sweep_summary(work, rows),
        baselines=sweep_baselines(work, rows),
        model=model_facts(lm),
        data={
            "name": work.skill.name,
            "rows": len(work.skill.train),
            "digest": work.skill.digest,
            "retained": sets,
            "tasks": [{"name": t.name, "rows": len(t), "digest": t.digest} for t in tasks],
        },
        **provenance("inject", spec, meter),
        rows=inject_frame(rows),
        files=kept,
    )
    return Result(record)


def sweep_summary(work: SweepContext, rows: Sequence[Row]) -> dict[str, Any]:
    """The findings: the Pareto points, what is told about them, what was lost on the way."""
    spec = work.spec
    points, start = pareto_points(rows, spec.skill), base_score(rows, spec.skill)
    return {
        "verb": "inject",
        "skill": work.skill.name,
        "exact_match_before": start,
        "pareto": points,
        "cells": [cell.name for cell in sweep_cells(spec)],
        "checkpoints": (spec.out or CHECKPOINT_FOLDER) if spec.checkpoints else None,
        "train_rows": len(work.skill.train),
        "test_rows": len(work.skill.test),
        "masks": work.skill.spelling.masks,
        "left_out": {one.name: one.left_out for one in work.kept},
        "notes": list(work.skill.notes),
        "verdict": inject_verdict(points, start, spec.skill),
    }


def base_score(rows: Sequence[Row], skill: str) -> float:
    """The exact match before any training."""
    asked = ("before", f"{skill} test", "exact_match")
    found = (r["value"] for r in rows if (r["stage"], r["probe"], r["metric"]) == asked)
    return float(next(found, 0.0))


def sweep_baselines(work: SweepContext, rows: Sequence[Row]) -> dict[str, Any]:
    """The base model, and always saying the commonest answer."""
    common = Counter(work.skill.train.meta["result"].tolist()).most_common(1)[0][0]
    hits = work.skill.test.meta["result"] == common
    losses = {r["probe"]: r["value"] for r in rows
              if r["stage"] == "before" and r["metric"] == "lm_loss"}  # fmt: skip
    return {
        "base": {"exact_match": base_score(rows, work.spec.skill), "lm_loss": losses},
        "commonest answer": {"exact_match": float(np.mean(hits))},
        "fine-tuned": task_baselines(work.courses, work.learned),
    }


def figure_details(work: SweepContext, found: FisherOverlap | None) -> dict[str, Any]:
    """What figures need beyond one number per cell: Fishers at the top entries, weight maps."""
    kept = [files.read_json(path) for path in (work.folder / "weights").glob("*.json")]
    samples = {one["of"]: one["rows"] for one in sorted(kept, key=lambda one: one["of"])}
    base = samples.pop("base", {})
    maps = []
    for layer, rows in base.items() if work.spec.clash else ():
        several = {"base": np.array(rows)}
        several |= {name: np.array(s[layer]) for name, s in samples.items() if layer in s}
        for way in WEIGHT_PROJECTIONS:
            points = project_rows(several, way, seed=work.spec.seed)
            shown = {name: p.round(4).tolist() for name, p in points.items()}
            maps.append({"layer": int(layer), "way": way, "points": shown})
    return {"tops": [] if found is None else found.tops, "maps": maps}


def save_weight_sample(folder: Path, name: str, rows: Any) -> None:
    """Rows of a model's weights, kept for the maps."""
    path = folder / "weights" / f"{digest_text(name)[:16]}.json"
    files.write_json(path, {"of": name, "rows": rows})


def estimate(spec: InjectSpec, *, console: Console | None = None) -> list[TrainingCost]:
    """What the sweep will cost, from a few steps."""
    lm = open_spec_model(spec)
    need_trainable(lm, spec)
    skill, kept, courses = (
        read_arithmetic_skill(lm, spec),
        read_retained_sets(lm, spec),
        read_retained_tasks(lm, spec),
    )
    return [sweep_cost(lm, spec, skill, kept, courses)]
