"""`cutaway nextword`: does next-word prediction already solve the task, and through which words?"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from cutaway.data.main_metric import majority_share
from cutaway.extract.estimate import estimate_pass
from cutaway.methods.nextword.details import DETAILS_FILE
from cutaway.methods.nextword.features import prompt_texts, prompts_for
from cutaway.methods.nextword.grid import NextwordGrid
from cutaway.methods.nextword.rows import nextword_frame, read_resampling
from cutaway.methods.nextword.save_p import p_size_bytes, report_p_size, save_p
from cutaway.methods.nextword.spec import NextwordSpec
from cutaway.methods.nextword.task import NextwordTask, nextword_tasks
from cutaway.methods.nextword.verdict import summarise
from cutaway.models.lm import model_facts
from cutaway.recipe.cost import Estimate, SampleSize
from cutaway.recipe.life_cycle import Context, Outcome, Run
from cutaway.recipe.open_for_spec import SpecModels
from cutaway.recipe.result import data_facts, one_or_many


@dataclass(frozen=True)
class NextwordRequest:
    """The models and the tasks to measure them on."""

    spec: NextwordSpec
    models: SpecModels
    tasks: list[NextwordTask]
    model_facts: list[dict[str, Any]]
    """Facts about each model, for the saved run."""
    model_identities: list[Any]
    predictions: int
    """Predictions on test rows that `--samples` keeps."""

    @property
    def identity(self) -> dict[str, Any]:
        """The models' weights and the tasks' rows, prompts and words."""
        return {"models": self.model_identities, "data": [task.identity for task in self.tasks]}


def resolve(spec: NextwordSpec, context: Context) -> NextwordRequest:
    """The tasks with their rows, once every model is known to support every feature."""
    tasks = nextword_tasks(spec, context.objects)
    models = SpecModels(spec, context.objects, {"revision": spec.revision})
    facts, identities, predictions = [], [], 0
    for lm in models:
        for task in tasks:
            grid = NextwordGrid(spec, lm, task, context.console)
            grid.check()
            predictions += grid.count_predictions()
            if spec.save_p:
                prompts = len(prompts_for(spec, lm, task))
                report_p_size(lm, len(task.texts), prompts, spec.runs, context.console)
        facts.append(model_facts(lm))
        identities.append(lm.identity)
    return NextwordRequest(spec, models, tasks, facts, identities, predictions)


def sample_size(request: NextwordRequest) -> SampleSize:
    """One row per feature kind, repeat and test row."""
    return SampleSize(request.predictions)


def estimate(request: NextwordRequest) -> list[Estimate]:
    """The cost of reading the texts: one estimate per model, task and prompt."""
    spec, costs = request.spec, []
    for lm in request.models:
        for task in request.tasks:
            for prompt in prompts_for(spec, lm, task):
                prompted = prompt_texts(spec, lm, task, prompt, task.texts)
                cost = estimate_pass(lm, prompted.texts, prompted.request)
                saved_mb = p_size_bytes(lm, len(task.texts)) / 2**20 if spec.save_p else 0.0
                costs.append(replace(cost, disk_mb=round(cost.disk_mb + saved_mb, 1)))
    return costs


def measure(request: NextwordRequest, run: Run) -> Outcome:
    """Every feature kind of every model on every task."""
    keys: list[str] = []
    words: dict[str, Any] = {}
    files: dict[str, Path | bytes] = {}
    splits: dict[str, pl.DataFrame] = {}
    for lm in request.models:
        for task in request.tasks:
            grid = NextwordGrid(request.spec, lm, task, run.console)
            keys += grid.measure_all(run.progress, run.samples)
            splits.setdefault(task.name, grid.splits_table())
            words[f"{lm.name} on {task.name}"] = grid.word_report()
            if request.spec.save_p:
                files |= _save_distributions(grid, run.folder / "p")
    table, stored = nextword_frame(run.progress.rows(keys)), run.progress.details(keys)
    details = [one for one in stored if "figure" in one]
    data_names = {task.name: task.texts.name for task in request.tasks}
    metrics = {task.name: task.metric for task in request.tasks}
    summary, baselines = summarise(
        table, data_names, words, details, metrics, read_resampling(stored),
        {task.name: majority_share(task.texts) for task in request.tasks},
    )  # fmt: skip
    return Outcome(
        rows=table,
        summary=summary,
        baselines=baselines,
        model=one_or_many(request.model_facts),
        data=one_or_many([{**data_facts(t.texts), "name": t.name} for t in request.tasks]),
        files={DETAILS_FILE: json.dumps(details).encode(), **files},
        splits=pl.concat(splits.values()),
    )


def _save_distributions(grid: NextwordGrid, folder: Path) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for number, prompt in enumerate(prompts_for(grid.spec, grid.lm, grid.task)):
        name = f"{grid.lm.short_id[:8]}-{grid.task.texts.digest[:8]}-{number}"
        files |= save_p(grid.features(prompt), folder, name, grid.console)
    return files
