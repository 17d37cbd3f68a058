"""`cutaway finetune`: teach a model a task, keep the checkpoint that did best on dev."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from cutaway.console import Console
from cutaway.core.errors import BadSpec
from cutaway.core.spec import address, build_spec
from cutaway.engine.process_group import process_group
from cutaway.methods.finetune.checkpoint import (
    FinetuneOutcome,
    checkpoint_path,
    need_free_output,
    reuse_checkpoint,
    written_checkpoint,
)
from cutaway.methods.finetune.rows import curve_rows, finetune_frame, finetune_verdict
from cutaway.methods.finetune.spec import FinetuneSpec
from cutaway.models.lm import LM, model_facts
from cutaway.recipe.cost import Estimate
from cutaway.recipe.life_cycle import on_rank0
from cutaway.recipe.objects import Objects, name_objects
from cutaway.recipe.open_for_spec import open_spec_model
from cutaway.recipe.provenance import CostMeter, measure_cost, provenance
from cutaway.recipe.result import Result
from cutaway.store.results import find_record, run_progress, save_record
from cutaway.training.cost import estimate_training
from cutaway.training.finetune_loop import restored, run_finetuning
from cutaway.training.task_model import TaskModel, finetune_mode, make_task_model
from cutaway.training.task_scores import majority_scores, scores_with_intervals
from cutaway.training.task_split import TaskSplit, load_task_split
from cutaway.training.trainable_params import trainable_params


def finetune(*, quiet: bool = False, **options: Any) -> Result:
    """Teach a model a task; `model` and `data` may be given as objects, and stay as they are."""
    fields = ("model", "data")
    named, objects = name_objects(options, fields, single=fields)
    spec, console = build_spec(FinetuneSpec, named), Console(quiet=quiet)
    return run(spec, console=console, objects=objects)


def run(
    spec: FinetuneSpec, *, console: Console | None = None, objects: Objects | None = None
) -> Result:
    """The taught model's checkpoint, and what it can do beside what the base could."""
    console = console or Console(quiet=True)
    process_group(spec.device)
    lm = open_spec_model(spec, objects)
    pupil, lesson = open_task(lm, spec, objects)
    name = address(spec, model=lm.identity, data=lesson.digest, mode=pupil.mode)
    done = find_record(spec.runs, "finetune", name)
    if done is not None and (again := reuse_checkpoint(spec, name, done)) is not None:
        return Result(again)
    need_free_output(spec, name)
    params = trainable_params(pupil, spec)
    with restored(params, when=bool(objects and spec.model in objects)):
        with measure_cost() as meter:
            work = train_and_score(spec, name, pupil, lesson, params, console)
        return on_rank0(lambda: save_with_checkpoint(work, meter), spec.runs, "finetune", name)


def train_and_score(
    spec: FinetuneSpec,
    name: str,
    pupil: TaskModel,
    lesson: TaskSplit,
    params: Mapping[str, nn.Parameter],
    console: Console,
) -> FinetuneOutcome:
    """Measured on the test rows before, taught, measured after."""
    test = pupil.examples.take(lesson.test)
    base = scores_with_intervals(test, pupil.predict_proba(lesson.test))
    folder = run_progress(spec.runs, "finetune", name).folder / "training"
    trained = run_finetuning(pupil, lesson, params, spec, folder, console, identity=name)
    tuned = scores_with_intervals(test, pupil.predict_proba(lesson.test))
    scores = {"tuned": tuned, "base": base, "majority": majority_scores(test)}
    return FinetuneOutcome(spec, name, pupil.lm, pupil, lesson, params, trained, scores)


def open_task(
    lm: LM, spec: FinetuneSpec, objects: Objects | None = None
) -> tuple[TaskModel, TaskSplit]:
    """The model with the task's questions, and how the rows are dealt."""
    mode = finetune_mode(lm, spec.mode)
    if spec.at != "auto" and mode != "head":
        raise BadSpec(f"at is for --mode head, got {spec.at!r} with mode {mode!r}.")
    columns = {name: getattr(spec, name) for name in ("text_column", "pair_column", "label_column")}
    lesson = load_task_split(spec, task=spec.task, data=spec.data, columns=columns, objects=objects)
    pupil = make_task_model(
        lm,
        lesson,
        mode,
        template=spec.template,
        words=spec.words,
        at=spec.at,
        max_tokens=spec.max_tokens,
        seed=spec.seed,
    )
    return pupil, lesson


def save_with_checkpoint(work: FinetuneOutcome, meter: CostMeter) -> Result:
    """The checkpoint and the run are on the disk."""
    with written_checkpoint(work) as held:
        return save_finetune_run(work, meter, held)


def save_finetune_run(
    work: FinetuneOutcome, meter: CostMeter, held: Mapping[str, Path | bytes]
) -> Result:
    """The run, saved whole."""
    spec, texts, where = work.spec, work.lesson.texts, work.where
    metric = work.lesson.task.metric
    steps = {"base": 0, "majority": 0, "tuned": work.trained.best_step}
    rows = [
        row
        for kind, scores in work.scores.items()
        for row in where.rows(kind, steps[kind], "test", scores)
    ] + curve_rows(where, work.trained.curve)
    record = save_record(
        spec.runs,
        method="finetune",
        address=work.name,
        spec=spec,
        summary=summarise_finetuning(work),
        baselines={
            f"{where.base} on {texts.name}": {
                kind: work.scores[kind][metric].mean for kind in ("base", "majority")
            }
        },
        model=model_facts(work.lm),
        data={"name": texts.name, "rows": len(texts), "digest": texts.digest},
        **provenance("finetune", spec, meter),
        rows=finetune_frame(rows),
        files=held,
    )
    return Result(record)


def summarise_finetuning(work: FinetuneOutcome) -> dict[str, Any]:
    """The findings."""
    metric, asked, trained = work.lesson.task.metric, work.pupil.examples, work.trained
    best = work.scores["tuned"][metric]
    shown = {"value": best.mean, "low": best.low, "high": best.high}
    return {
        "mode": work.pupil.mode,
        "task": work.lesson.task.name,
        "template": asked.format.template,
        "words": list(asked.format.words),
        "metric": metric,
        "best": {"model": work.lm.name, "data": work.lesson.texts.name, "metric": metric, **shown},
        "test": {k: {n: s.mean for n, s in found.items()} for k, found in work.scores.items()},
        "rows": {part: len(getattr(work.lesson, part)) for part in ("train", "dev", "test")},
        "best_step": trained.best_step,
        "best_dev": trained.best,
        "stopped": trained.stopped,
        "steps_per_second": round(trained.curve[-1]["step"] / max(trained.seconds, 1e-9), 2),
        "trained_weights": sum(p.numel() for p in work.params.values()),
        "cut_texts": asked.truncated,
        "checkpoint": str(checkpoint_path(work.spec, work.name)),
        "notes": list(work.lesson.texts.notes),
        "verdict": finetune_verdict(
            work.where, metric, work.scores, trained, len(work.lesson.train)
        ),
    }


def estimate(spec: FinetuneSpec, *, console: Console | None = None) -> list[Estimate]:
    """The cost, from a few steps that change nothing."""
    return [estimate_training(*open_task(open_spec_model(spec), spec), spec)]
