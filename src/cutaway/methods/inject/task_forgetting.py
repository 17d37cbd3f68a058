"""Forgetting measured by fine-tuning: can the trained model still learn a task as well as the base?

Each retained task is fine-tuned on the base model and on every trained model, with the same
initial head, batch order and number of steps; the difference of their test scores is what was
forgotten. The model's weights are restored afterwards. Finished fine-tunings are read back, and
interrupted ones continue.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cutaway.console import Console
from cutaway.core.digest import digest_text
from cutaway.core.errors import Corrupt, Missing
from cutaway.core.spec import build_spec
from cutaway.data.tasks import tasks_by_alias
from cutaway.engine.process_group import process_group
from cutaway.measure.intervals import Interval
from cutaway.measure.jackknife import one_set_difference
from cutaway.methods.inject.retain import retained_columns
from cutaway.methods.inject.rows import InjectCoordinates
from cutaway.methods.inject.spec import InjectSpec
from cutaway.methods.inject.weight_samples import WeightSample, sample_weights
from cutaway.models.lm import LM
from cutaway.recipe.objects import Objects, with_unique_names
from cutaway.recipe.result import Row
from cutaway.store import files
from cutaway.training.finetune_loop import restored, run_finetuning
from cutaway.training.options import TrainingSpec
from cutaway.training.prompting import PromptedExamples
from cutaway.training.task_model import (
    HeadPosition,
    TaskModel,
    make_plain_examples,
    make_task_model,
)
from cutaway.training.task_scores import majority_scores, metric_values, scores_with_intervals
from cutaway.training.task_split import TaskSplit, load_task_split
from cutaway.training.trainable_params import trainable_params

# Rows evaluated during a fine-tuning, and after it.
DEV_ROWS, TEST_ROWS = 200, 1000
TaskAnswers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RetainedTask:
    """A labelled set to fine-tune on, the training options, and its test examples."""

    name: str
    split: TaskSplit
    training: TrainingSpec
    test: PromptedExamples

    @property
    def metric(self) -> str:
        """The task's main metric."""
        return self.split.task.metric

    def scores(self, answers: TaskAnswers) -> dict[str, Interval]:
        """{finetune_<metric>: score with its interval}."""
        classes = self.split.texts.task in ("binary", "multiclass")
        names = list(dict.fromkeys([self.metric, *(["accuracy"] * classes)]))
        scores = scores_with_intervals(self.test, answers, names)
        return {f"finetune_{name}": value for name, value in scores.items()}

    def score(self, answers: TaskAnswers, rows: NDArray[np.int64] | None = None) -> float:
        """The main metric of these answers, on all test rows or on the given ones."""
        test = self.test if rows is None else self.test.take(rows)
        chosen = answers if rows is None else answers[rows]
        return metric_values(test, chosen, [self.metric])[self.metric]

    def forgetting(self, before: TaskAnswers, after: TaskAnswers) -> Interval:
        """How much the main metric fell, with an interval over blocks of paired test rows."""
        both = (partial(self.score, answers) for answers in (before, after))
        found = one_set_difference(self.metric, self.test.labels, *both).interval
        return replace(found, n=len(self.test))

    def majority_score(self) -> float:
        """The score of the most frequent answer for all rows."""
        return majority_scores(self.test)[self.metric].mean


def read_retained_tasks(
    lm: LM, spec: InjectSpec, objects: Objects | None = None
) -> list[RetainedTask]:
    """Every task of `--retain-tasks`, with unique names."""
    tasks = (_read_retained_task(lm, spec, source, objects) for source in spec.retain_tasks)
    return list(with_unique_names(tasks, lambda task: task.split.digest, option="--retain-tasks"))


def _read_retained_task(
    lm: LM, spec: InjectSpec, source: str, objects: Objects | None
) -> RetainedTask:
    task, _, rows = source.partition("=")
    named = bool(rows) and (task.lower() in tasks_by_alias() or task.endswith(".toml"))
    given = {"task": task, "data": rows} if named else {"task": None, "data": source}
    data = str(given["data"])
    columns = retained_columns(spec, (objects or {}).get(data, data))
    training = task_training(spec, spec.seed).model_copy(update=columns)
    split = load_task_split(training, **given, objects=objects)
    if len(split.dev) > DEV_ROWS:
        rng = np.random.default_rng([spec.seed, len(split.dev)])
        split = replace(split, dev=np.sort(rng.choice(split.dev, DEV_ROWS, replace=False)))
    test = make_plain_examples(lm, split, spec.max_tokens).take(split.test)
    return RetainedTask(split.task.name if named else split.texts.name, split, training, test)


def task_training(spec: InjectSpec, seed: int) -> TrainingSpec:
    """The options of a fine-tuning, the same for every model."""
    return build_spec(
        TrainingSpec,
        {
            "shots": spec.task_shots,
            "data_seed": spec.seed,
            "test_limit": TEST_ROWS,
            "max_tokens": spec.max_tokens,
            "steps": spec.task_steps,
            "batch": spec.task_batch,
            "lr": spec.task_lr,
            "optimizer": "adamw",
            "schedule": "linear",
            "warmup": spec.task_steps // 10,
            "weight_decay": 0.01,
            "every": max(1, -(-spec.task_steps // 3)),
            "seed": seed,
            "offline": spec.offline,
        },
    )


def make_head_model(lm: LM, task: RetainedTask, seed: int) -> TaskModel:
    """The model with a linear head, initialised by the seed, on the token that sees all others."""
    at: HeadPosition = "last" if lm.kind == "causal" else "first"
    most = task.training.max_tokens
    return make_task_model(lm, task.split, "head", at=at, max_tokens=most, seed=seed)


def finetune_on_tasks(
    lm: LM, tasks: Sequence[RetainedTask], name: str, seed: int, folder: Path, console: Console
) -> tuple[dict[str, TaskAnswers], list[WeightSample]]:
    """Fine-tune the model `name` on each task: its test answers by task, and weight samples."""
    done = {task.name: _finetune_on_task(lm, task, name, seed, folder, console) for task in tasks}
    return {t: a for t, (a, _) in done.items()}, [s for _, s in done.values() if s is not None]


def _finetune_on_task(
    lm: LM, task: RetainedTask, name: str, seed: int, folder: Path, console: Console
) -> tuple[TaskAnswers, WeightSample | None]:
    checkpoints = folder / f"{name}-{digest_text(task.name)[:12]}"
    result = checkpoints.with_name(f"{checkpoints.name}.json")
    try:
        saved = files.read_sealed(result)
        return np.asarray(saved["answers"], dtype=np.float64), saved.get("weights")
    except (Missing, Corrupt):
        console.print(f"Fine-tuning {name} on {task.name}.")
    training = task.training.model_copy(update={"seed": seed})
    model = make_head_model(lm, task, seed)
    params = trainable_params(model, training)
    with restored(params, when=True):
        identity = f"{name} {task.split.digest}"
        run_finetuning(model, task.split, params, training, checkpoints, console, identity=identity)
        answers = model.predict_proba(task.split.test)
        sample = sample_weights(f"{task.name} fine-tuned", lm, lm.params())
    if process_group().first:
        files.write_sealed(result, {"answers": answers.tolist(), "weights": sample})
        files.remove_folder(checkpoints)
    return answers, sample


def retained_task_rows(
    tasks: Sequence[RetainedTask],
    coordinates: InjectCoordinates,
    answers: Mapping[str, TaskAnswers],
    before: Mapping[str, TaskAnswers] | None = None,
) -> list[Row]:
    """Scores after each fine-tuning and, given the base model's answers, what was forgotten."""
    rows = []
    for task in tasks:
        metrics = task.scores(answers[task.name])
        if before is not None:
            lost = task.forgetting(before[task.name], answers[task.name])
            metrics["finetune_forgetting"] = lost
        rows += coordinates.rows("before" if before is None else "after", task.name, metrics)
    return rows


def task_baselines(
    tasks: Sequence[RetainedTask], before: Mapping[int, Mapping[str, TaskAnswers]]
) -> dict[str, dict[str, float]]:
    """The score of the fine-tuned base, averaged over seeds, and of the most frequent answer."""
    return {
        task.name: {
            "base": float(np.mean([task.score(a[task.name]) for a in before.values()])),
            "one answer for all": task.majority_score(),
        }
        for task in tasks
    }
