"""`cutaway graft continual`: tasks one after the other, with and without forgetting.

    graft        train on the task with the earlier skills' weights held still, find the few
                 weights that hold what was learned, keep those alone
    sequential   train on each task from where the last one ended

After each task both are tested on all tasks.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from cutaway.console import Console
from cutaway.core.errors import BadSpec
from cutaway.core.spec import address
from cutaway.extract.model_handle import training_resources
from cutaway.methods.graft.continual_skill import learn_task_skill, pair_after_task, with_metadata
from cutaway.methods.graft.forgetting import base_scores, summarise_forgetting
from cutaway.methods.graft.maths.patch import Patch, values_at, write_values
from cutaway.methods.graft.maths.select import Mask, Params, mask_size, union_mask
from cutaway.methods.graft.maths.soft_mask import assign_weights
from cutaway.methods.graft.rows import GraftCoordinates, graft_frame
from cutaway.methods.graft.skill import Skill, load_skill
from cutaway.methods.graft.spec import ContinualSpec
from cutaway.models.digests import checksum
from cutaway.models.lm import LM, model_facts
from cutaway.recipe.objects import Objects
from cutaway.recipe.open_for_spec import open_for_spec
from cutaway.recipe.provenance import measure_cost, provenance
from cutaway.recipe.result import Result
from cutaway.recipe.table import Row
from cutaway.recipe.worker_pieces import (
    check_same_run,
    local_spec,
    run_on_workers,
    runs_on_workers,
    sendable,
)
from cutaway.store.progress import Progress
from cutaway.store.results import find_record, run_progress, save_record
from cutaway.training.finetune_loop import restored, run_finetuning
from cutaway.training.task_model import TaskModel, finetune_mode, make_task_model
from cutaway.training.task_scores import Scores, scores_with_intervals
from cutaway.training.task_split import TaskSplit, load_task_split
from cutaway.training.trainable_params import trainable_params

EMPTY_MASK = Mask({})
# Weights, gradients, the optimiser, those of the best step and of before, the mask's logits.
COPIES = 7


@dataclass(frozen=True, eq=False)
class ContinualTask:
    """One task of the course."""

    pupil: TaskModel
    lesson: TaskSplit

    @property
    def name(self) -> str:
        """The task's name."""
        return self.lesson.task.name


@dataclass(frozen=True, eq=False)
class ContinualContext:
    """The model, its courses, and where unfinished pieces are kept."""

    spec: ContinualSpec
    name: str
    lm: LM
    courses: tuple[ContinualTask, ...]
    params: Mapping[str, nn.Parameter]
    folder: Path
    console: Console

    @property
    def where(self) -> GraftCoordinates:
        """The coordinates that all rows share; the task is each row's own."""
        return GraftCoordinates(self.lm.name, None, "")


def run(
    spec: ContinualSpec, *, console: Console | None = None, objects: Objects | None = None
) -> Result:
    """The forgetting table: every task's score after every task, both ways."""
    work = open_continual(spec, console or Console(quiet=True), objects)
    done = find_record(spec.runs, "graft", work.name)
    if done is not None:
        return Result(done)
    with measure_cost() as meter:
        rows = list(score_all_tasks(work, "base", 0))
        found = run_strategies(work, objects)
        rows += [row for way in STRATEGY_RUNNERS for row in found[way]]
    texts = [course.lesson.texts for course in work.courses]
    record = save_record(
        spec.runs,
        method="graft",
        address=work.name,
        spec=spec,
        summary=summarise_forgetting(
            rows, [course.name for course in work.courses], _metrics(work)
        ),
        baselines=base_scores(rows),
        model=model_facts(work.lm),
        data=[{"name": t.name, "rows": len(t), "digest": t.digest} for t in texts],
        **provenance("graft continual", spec, meter),
        rows=graft_frame(rows),
        files=skill_files(work),
    )
    return Result(record)


def open_continual(
    spec: ContinualSpec, console: Console, objects: Objects | None = None
) -> ContinualContext:
    """The model with every task's questions."""
    if len(spec.task) < 2:
        raise BadSpec(f"task needs at least two tasks to learn in turn, got {spec.task[0]!r}.")
    if spec.data and len(spec.data) != len(spec.task):
        raise BadSpec(
            f"data has {len(spec.data)} entries for {len(spec.task)} tasks: one for each."
        )
    lm = open_for_spec(spec.base, spec, objects, revision=spec.revision)
    sources = spec.data or (None,) * len(spec.task)
    courses = []
    for task, data in zip(spec.task, sources, strict=True):
        lesson = load_task_split(spec, task=task, data=data, objects=objects)
        pupil = make_task_model(
            lm, lesson, finetune_mode(lm, None), max_tokens=spec.max_tokens, seed=spec.seed
        )
        courses.append(ContinualTask(pupil, lesson))
    names = [course.name for course in courses]
    if len(set(names)) < len(names):
        raise BadSpec(f"Tasks must have different names, got {', '.join(names)}.")
    name = address(spec, base=lm.identity, data=[course.lesson.digest for course in courses])
    params = trainable_params(courses[0].pupil, spec)
    mask_size(spec.sparsity, sum(value.numel() for value in params.values()))
    folder = run_progress(spec.runs, "graft", name).folder
    return ContinualContext(spec, name, lm, tuple(courses), params, folder, console)


@dataclass(frozen=True, eq=False)
class ContinualWorker:
    """What a worker needs to go one way: the request; what it learns is in the run's folder."""

    spec: ContinualSpec
    objects: Objects
    name: str

    @cached_property
    def work(self) -> ContinualContext:
        """The model and its courses, opened once per worker."""
        work = open_continual(self.spec, Console(quiet=True), self.objects)
        check_same_run(work.name, self.name)
        return work

    def __call__(self, way: str) -> list[Row]:
        """The rows of one way."""
        return run_strategy(self.work, way)


def run_strategies(work: ContinualContext, objects: Objects | None) -> dict[str, list[Row]]:
    """The rows of each way, one after the other here, or each by a worker of the engine."""
    spec = work.spec
    if not runs_on_workers(spec.engine, objects, work.console):
        return {way: run_strategy(work, way) for way in STRATEGY_RUNNERS}
    hand = ContinualWorker(local_spec(spec), sendable(objects), work.name)
    needs = training_resources(spec.engine, spec, work.lm, copies=COPIES)
    return dict(
        run_on_workers(
            spec.engine, hand, STRATEGY_RUNNERS, key=lambda way: f"way {way}", needs=needs, kept=work.folder,
            console=work.console,
        )
    )  # fmt: skip


def run_strategy(work: ContinualContext, way: str) -> list[Row]:
    """All tasks, one way; the weights are the base's again afterwards."""
    with restored(work.params, when=True):
        return list(STRATEGY_RUNNERS[way](work))


def train_sequentially(work: ContinualContext) -> Iterator[Row]:
    """Each task from where the last one ended."""
    for stage, course in enumerate(work.courses, start=1):
        work.console.print(f"Plain training, task {stage} of {len(work.courses)}: {course.name}.")
        _train_on(work, course, f"sequential-{stage}")
        yield from score_all_tasks(work, "sequential", stage)


def train_with_grafts(work: ContinualContext) -> Iterator[Row]:
    """Each task outside the earlier skills; of what it learned only a few weights are kept."""
    taken, base = EMPTY_MASK, checksum(work.lm.params())
    for stage, course in enumerate(work.courses, start=1):
        work.console.print(f"Grafts, task {stage} of {len(work.courses)}: {course.name}.")
        before = {name: value.detach().clone() for name, value in work.params.items()}
        with frozen_entries(work.params, taken) as project:
            _train_on(work, course, f"graft-{stage}", project)
        yield from _score_once(work, "outside", stage, course)
        path = skill_file(work, stage, course)
        if not path.with_suffix(".json").exists():
            _make_skill(work, stage, before, base).save(path)
        patch = load_skill(path).patch
        assign_weights(work.params, before)
        write_values(work.params, patch.mask, patch.after)
        taken = union_mask([taken, patch.mask])
        yield _size_row(work, stage, course, patch)
        yield from score_all_tasks(work, "graft", stage)


def _make_skill(work: ContinualContext, stage: int, before: Params, base: str) -> Skill:
    """The skill of what the model has learned since `before`, with its scores."""
    course = work.courses[stage - 1]
    pair = pair_after_task(work, course, before, base)
    skill = learn_task_skill(work, course, pair)
    write_values(work.params, skill.patch.mask, skill.patch.after)
    marks = (("base", 0), ("outside", stage), ("graft", stage))
    rows = [row for kind, step in marks for row in _score_once(work, kind, step, course)]
    return with_metadata(work, course, pair, skill, rows)


STRATEGY_RUNNERS: dict[str, Callable[[ContinualContext], Iterator[Row]]] = {
    "sequential": train_sequentially,
    "graft": train_with_grafts,
}


def skill_file(work: ContinualContext, stage: int, course: ContinualTask) -> Path:
    """Where a task's skill is kept until the run is done."""
    return work.folder / f"{stage}-{_file_stem(course.name)}.safetensors"


def skill_files(work: ContinualContext) -> dict[str, Path]:
    """Every task's skill, by the name that the run keeps it under."""
    found = [skill_file(work, stage, course) for stage, course in enumerate(work.courses, start=1)]
    return {file.name: file for path in found for file in (path, path.with_suffix(".json"))}


def _train_on(
    work: ContinualContext,
    course: ContinualTask,
    key: str,
    project: Callable[[], None] | None = None,
) -> None:
    run_finetuning(
        course.pupil, course.lesson, work.params, work.spec, work.folder / key, work.console,
        identity=f"{work.name} {key}", project=project,
    )  # fmt: skip


@contextmanager
def frozen_entries(params: Mapping[str, nn.Parameter], mask: Mask) -> Iterator[Callable[[], None]]:
    """The chosen weights neither move nor count in the gradient; what is given puts them back."""
    kept = values_at(params, mask)

    def without(places: Tensor) -> Callable[[Tensor], Tensor]:
        def hook(grad: Tensor) -> Tensor:
            still = grad.contiguous().clone()
            still.view(-1)[places.to(grad.device)] = 0
            return still

        return hook

    flags = {name: params[name].requires_grad for name in mask.places}
    hooks = []
    for name, places in mask.places.items():
        params[name].requires_grad_(True)
        param: Any = params[name]
        hooks.append(param.register_hook(without(places)))
    try:
        yield lambda: write_values(params, mask, kept)
    finally:
        for hook in hooks:
            hook.remove()
        for name, flag in flags.items():
            params[name].requires_grad_(flag)


def score_all_tasks(work: ContinualContext, kind: str, stage: int) -> Iterator[Row]:
    """Every task's scores with the weights in place."""
    for course in work.courses:
        yield from _score_once(work, kind, stage, course)


def _score_once(work: ContinualContext, kind: str, stage: int, course: ContinualTask) -> list[Row]:
    """One task's scores; measured once, whatever interrupts the course."""
    kept, key = Progress(work.folder), f"{kind}-{stage}-{course.name}"
    if key not in kept.done():
        kept.put(key, list(_score_rows(work, kind, stage, course)))
    return kept.rows([key])


def _score_rows(
    work: ContinualContext, kind: str, stage: int, course: ContinualTask
) -> Iterator[Row]:
    asked = course.pupil.examples.take(course.lesson.test)
    names = [asked.metric, *(["ece"] if asked.task != "regression" else [])]
    found: Scores = scores_with_intervals(
        asked, course.pupil.predict_proba(course.lesson.test), names
    )
    for row in work.where.scores(kind, found, step=stage, data=course.lesson.texts.name):
        yield row | {"task": course.name, "seed": work.spec.seed, "sparsity": work.spec.sparsity}


def _size_row(work: ContinualContext, stage: int, course: ContinualTask, patch: Patch) -> Row:
    row = work.where.row("graft", "size", float(patch.size), step=stage)
    return row | {"task": course.name, "seed": work.spec.seed, "sparsity": work.spec.sparsity}


def _metrics(work: ContinualContext) -> dict[str, str]:
    return {course.name: course.pupil.examples.metric for course in work.courses}


def _file_stem(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in name)


def estimate(spec: ContinualSpec, *, console: Console | None = None) -> list[Any]:
    """The cost of each task's training, twice: both ways train it."""
    from cutaway.training.cost import estimate_training

    work = open_continual(spec, Console(quiet=True))
    costs = [estimate_training(course.pupil, course.lesson, spec) for course in work.courses]
    return [cost for cost in costs for _ in range(2)]
