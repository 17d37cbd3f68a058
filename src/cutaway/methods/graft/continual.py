"""`cutaway graft continual`: learn several tasks in sequence, with grafts and without.

    graft        train on the task while the weights of earlier skills are frozen, find the few
                 weights that hold what was learned, and keep only those
    sequential   train on each task from where the previous one ended

After each task both models are tested on all tasks.
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
from cutaway.extract.model_handle import training_resources
from cutaway.measure.jackknife import perfect_rows
from cutaway.methods.graft.continual_skill import ContinualTask, learn_task_skill
from cutaway.methods.graft.forgetting import base_scores, summarise_forgetting
from cutaway.methods.graft.maths.patch import values_at, write_values
from cutaway.methods.graft.maths.select import Mask, Params, mask_size, union_mask
from cutaway.methods.graft.maths.soft_mask import assign_weights
from cutaway.methods.graft.rows import GRAFT_SCHEMA, GraftCoordinates
from cutaway.methods.graft.skill import Skill, load_skill
from cutaway.methods.graft.spec import ContinualSpec
from cutaway.models.digests import checksum
from cutaway.models.lm import LM, model_facts
from cutaway.recipe.cost import Estimate
from cutaway.recipe.life_cycle import Context, Outcome, Run
from cutaway.recipe.objects import Objects
from cutaway.recipe.open_for_spec import open_for_spec
from cutaway.recipe.result import Row, table
from cutaway.recipe.worker_pieces import (
    local_spec,
    resolve_on_worker,
    run_on_workers,
    runs_on_workers,
    sendable,
)
from cutaway.store import files
from cutaway.store.progress import Progress
from cutaway.training.cost import estimate_training
from cutaway.training.finetune_loop import restored, run_finetuning
from cutaway.training.predictions import split_table
from cutaway.training.task_model import finetune_mode, make_task_model
from cutaway.training.task_scores import block_scores, scores_with_intervals
from cutaway.training.task_split import load_task_split
from cutaway.training.trainable_params import trainable_params

# Copies of the weights in memory: weights, gradients, optimizer, best step, start, mask logits.
COPIES = 7


@dataclass(frozen=True, eq=False)
class ContinualRequest:
    """The model, the parameters to train, and the tasks in the order they are learned."""

    spec: ContinualSpec
    lm: LM
    tasks: tuple[ContinualTask, ...]
    params: Mapping[str, nn.Parameter]

    @property
    def identity(self) -> dict[str, Any]:
        """The base and the tasks with their rows."""
        return {"base": self.lm.identity, "data": [task.split.digest for task in self.tasks]}


def resolve(spec: ContinualSpec, context: Context) -> ContinualRequest:
    """The model with the examples of every task."""
    if len(spec.task) < 2:
        raise BadSpec(f"task needs at least two tasks to learn in turn, got {spec.task[0]!r}.")
    if spec.data and len(spec.data) != len(spec.task):
        raise BadSpec(
            f"data has {len(spec.data)} entries for {len(spec.task)} tasks: give one for each."
        )
    lm = open_for_spec(spec.base, spec, context.objects, revision=spec.revision)
    tasks = []
    for name, data in zip(spec.task, spec.data or (None,) * len(spec.task), strict=True):
        split = load_task_split(spec, task=name, data=data, objects=context.objects)
        mode = finetune_mode(lm, None)
        model = make_task_model(lm, split, mode, max_tokens=spec.max_tokens, seed=spec.seed)
        tasks.append(ContinualTask(model, split))
    names = [task.name for task in tasks]
    if len(set(names)) < len(names):
        raise BadSpec(f"Tasks must have different names, got {', '.join(names)}.")
    params = trainable_params(tasks[0].model, spec)
    mask_size(spec.sparsity, sum(value.numel() for value in params.values()))
    return ContinualRequest(spec, lm, tuple(tasks), params)


def measure(request: ContinualRequest, run: Run) -> Outcome:
    """The score of every task after every task, with both strategies."""
    training = ContinualTraining(request, run.address, run.folder, run.console)
    rows = list(training.score_all_tasks("base", 0))
    by_strategy = run_strategies(training, run)
    rows += [row for strategy in STRATEGY_RUNNERS for row in by_strategy[strategy]]
    tests = {task.name: task.model.examples.take(task.split.test) for task in request.tasks}
    metrics = {name: examples.metric for name, examples in tests.items()}
    worth = {name: perfect_rows(one.metric, one.labels) for name, one in tests.items()}
    texts = [task.split.texts for task in request.tasks]
    return Outcome(
        rows=table(rows, GRAFT_SCHEMA),
        summary=summarise_forgetting(rows, metrics, worth, min(map(len, tests.values()))),
        baselines=base_scores(rows),
        model=model_facts(request.lm),
        data=[{"name": t.name, "rows": len(t), "digest": t.digest} for t in texts],
        files=training.skill_files(),
        splits=split_table(*(task.split for task in request.tasks)),
    )


def estimate(request: ContinualRequest) -> list[Estimate]:
    """The cost of training on each task, twice: once per strategy."""
    costs = [estimate_training(task.model, task.split, request.spec) for task in request.tasks]
    return [cost for cost in costs for _ in STRATEGY_RUNNERS]


@dataclass(frozen=True, eq=False)
class ContinualTraining:
    """The training of one run; finished scores, skills and checkpoints are in its folder."""

    request: ContinualRequest
    address: str
    folder: Path
    console: Console

    def run(self, strategy: str) -> list[Row]:
        """All tasks with one strategy; the base's weights are restored afterwards."""
        with restored(self.request.params, when=True):
            return list(STRATEGY_RUNNERS[strategy](self))

    def train(
        self, task: ContinualTask, key: str, project: Callable[[], None] | None = None
    ) -> None:
        """Train on one task, from the current weights."""
        run_finetuning(
            task.model, task.split, self.request.params, self.request.spec, self.folder / key,
            self.console, identity=f"{self.address} {key}", project=project,
        )  # fmt: skip

    def score_all_tasks(self, kind: str, stage: int) -> Iterator[Row]:
        """Every task's scores with the current weights."""
        for task in self.request.tasks:
            yield from self.score(kind, stage, task)

    def score(self, kind: str, stage: int, task: ContinualTask) -> list[Row]:
        """One task's scores with the current weights, measured only once per run."""
        progress, key = Progress(self.folder), f"{kind}-{stage}-{task.name}"
        if key not in progress.done():
            progress.put(key, self._score_rows(kind, stage, task))
        return progress.rows([key])

    def _score_rows(self, kind: str, stage: int, task: ContinualTask) -> list[Row]:
        examples = task.model.examples.take(task.split.test)
        names = [examples.metric, *(["ece"] if examples.task != "regression" else [])]
        probabilities = task.model.predict_proba(task.split.test)
        scores = scores_with_intervals(examples, probabilities, names)
        coordinates, cell = self._coordinates(stage, task)
        cell |= {"data": task.split.texts.name}
        blocks = block_scores(examples, probabilities)
        return [
            *coordinates.scores(kind, scores, **cell),
            *coordinates.blocks(kind, examples.metric, blocks, **cell),
        ]

    def size_row(self, stage: int, task: ContinualTask, size: int) -> Row:
        """The number of weights of a task's skill."""
        coordinates, cell = self._coordinates(stage, task)
        return coordinates.row("graft", "size", float(size), **cell)

    def _coordinates(
        self, stage: int, task: ContinualTask
    ) -> tuple[GraftCoordinates, dict[str, Any]]:
        spec = self.request.spec
        cell = {"step": stage, "seed": spec.seed, "sparsity": spec.sparsity}
        return GraftCoordinates(self.request.lm.name, None, task.name), cell

    def skill(self, stage: int, before: Params, base: str) -> Skill:
        """The skill of what was learned since `before`, found or loaded; with its scores."""
        task, params = self.request.tasks[stage - 1], self.request.params
        path = self.skill_path(stage)
        if not path.with_suffix(".json").exists():
            unfinished = path.with_suffix("")
            learned = learn_task_skill(
                self.request.spec, self.request.lm, task, params, before, base, self.console,
                unfinished,
            )  # fmt: skip
            write_values(params, learned.skill.patch.mask, learned.skill.patch.after)
            kinds = (("base", 0), ("outside", stage), ("graft", stage))
            rows = [row for kind, step in kinds for row in self.score(kind, step, task)]
            earlier = [one.name for one in self.request.tasks[: stage - 1]]
            learned.with_metadata(rows, earlier).save(path)
            files.remove_folder(unfinished)
        return load_skill(path)

    def skill_path(self, stage: int) -> Path:
        """Where a task's skill is kept until the run is saved."""
        name = self.request.tasks[stage - 1].name
        stem = "".join(c if c.isalnum() or c in "-_" else "-" for c in name)
        return self.folder / f"{stage}-{stem}.safetensors"

    def skill_files(self) -> dict[str, Path | bytes]:
        """Every task's skill, by its file name in the run's folder."""
        paths = [self.skill_path(stage) for stage in range(1, len(self.request.tasks) + 1)]
        return {file.name: file for path in paths for file in (path, path.with_suffix(".json"))}


def train_sequentially(training: ContinualTraining) -> Iterator[Row]:
    """Train on each task from where the previous one ended."""
    tasks = training.request.tasks
    for stage, task in enumerate(tasks, start=1):
        training.console.print(f"Sequential training, task {stage} of {len(tasks)}: {task.name}.")
        training.train(task, f"sequential-{stage}")
        yield from training.score_all_tasks("sequential", stage)


def train_with_grafts(training: ContinualTraining) -> Iterator[Row]:
    """Train on each task outside the earlier skills, and keep only the task's skill."""
    tasks, params = training.request.tasks, training.request.params
    frozen, base = Mask({}), checksum(training.request.lm.params())
    for stage, task in enumerate(tasks, start=1):
        training.console.print(f"Grafts, task {stage} of {len(tasks)}: {task.name}.")
        before = {name: value.detach().clone() for name, value in params.items()}
        with frozen_entries(params, frozen) as project:
            training.train(task, f"graft-{stage}", project)
        yield from training.score("outside", stage, task)
        patch = training.skill(stage, before, base).patch
        assign_weights(params, before)
        write_values(params, patch.mask, patch.after)
        frozen = union_mask([frozen, patch.mask])
        yield training.size_row(stage, task, patch.size)
        yield from training.score_all_tasks("graft", stage)


STRATEGY_RUNNERS: dict[str, Callable[[ContinualTraining], Iterator[Row]]] = {
    "sequential": train_sequentially,
    "graft": train_with_grafts,
}


def run_strategies(training: ContinualTraining, run: Run) -> dict[str, list[Row]]:
    """The rows of each strategy, one after the other here, or each on a worker."""
    spec = training.request.spec
    if not runs_on_workers(spec.engine, run.objects, run.console):
        return {strategy: training.run(strategy) for strategy in STRATEGY_RUNNERS}
    folder = run.folder.absolute()
    worker = ContinualWorker(local_spec(spec), sendable(run.objects), run.address, folder)
    needs = training_resources(spec.engine, spec, training.request.lm, copies=COPIES)
    return dict(
        run_on_workers(
            spec.engine, worker, STRATEGY_RUNNERS, key=lambda strategy: f"strategy {strategy}",
            needs=needs, kept=run.folder, console=run.console,
        )
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class ContinualWorker:
    """Runs one strategy on a worker; what it learns is kept in the run's folder."""

    spec: ContinualSpec
    objects: Objects
    address: str
    folder: Path

    @cached_property
    def training(self) -> ContinualTraining:
        """The model and its tasks, opened once per worker."""
        request = resolve_on_worker(resolve, self.spec, self.objects, self.address)
        return ContinualTraining(request, self.address, self.folder, Console(quiet=True))

    def __call__(self, strategy: str) -> list[Row]:
        """The rows of one strategy."""
        return self.training.run(strategy)


@contextmanager
def frozen_entries(params: Mapping[str, nn.Parameter], mask: Mask) -> Iterator[Callable[[], None]]:
    """The chosen weights get no gradient; the yielded function restores them after a step."""
    before = values_at(params, mask)

    def zero_gradient(indices: Tensor) -> Callable[[Tensor], Tensor]:
        def hook(grad: Tensor) -> Tensor:
            masked = grad.contiguous().clone()
            masked.view(-1)[indices.to(grad.device)] = 0
            return masked

        return hook

    flags = {name: params[name].requires_grad for name in mask.indices}
    hooks = []
    for name, indices in mask.indices.items():
        param: Any = params[name].requires_grad_(True)
        hooks.append(param.register_hook(zero_gradient(indices)))
    try:
        yield lambda: write_values(params, mask, before)
    finally:
        for hook in hooks:
            hook.remove()
        for name, flag in flags.items():
            params[name].requires_grad_(flag)
