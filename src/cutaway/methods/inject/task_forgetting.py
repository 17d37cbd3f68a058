"""Fine-tunes before and after: what the model can still be taught as well as before.

A labelled set is learned by the base and by every injected model, from the same head, in the same
order, for as many steps; what both answer on the test rows says what was lost. The model is as it
was afterwards. A fine-tune that is done is read back, one that was killed goes on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cutaway.console import Console
from cutaway.core.digest import digest_text
from cutaway.core.errors import Corrupt, Missing
from cutaway.core.spec import build_spec
from cutaway.data.tasks import tasks_by_alias
from cutaway.engine.process_group import process_group
from cutaway.measure.intervals import Interval, bootstrap
from cutaway.methods.inject.rows import InjectCoordinates
from cutaway.methods.inject.spec import InjectSpec
from cutaway.models.lm import LM
from cutaway.recipe.objects import Objects
from cutaway.recipe.table import Row
from cutaway.recipe.unique_names import with_unique_names
from cutaway.store import files
from cutaway.training.finetune_loop import restored, run_finetuning, trainable_params
from cutaway.training.options import TrainingSpec
from cutaway.training.prompting import PromptedExamples
from cutaway.training.task_model import (
    HeadPosition,
    TaskModel,
    make_plain_examples,
    make_task_model,
)
from cutaway.training.task_scores import (
    Scores,
    majority_scores,
    metric_values,
    scores_with_intervals,
)
from cutaway.training.task_split import TaskSplit, load_task_split

# Rows looked at while a fine-tune goes on, and at its end.
DEV_ROWS, TEST_ROWS = 200, 1000
TaskAnswers = NDArray[np.float64]
FinetunedCallback = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class RetainedTask:
    """A set to fine-tune on, how, and its test rows as questions."""

    name: str
    lesson: TaskSplit
    training: TrainingSpec
    test: PromptedExamples

    @property
    def metric(self) -> str:
        """What it is measured by."""
        return self.lesson.task.metric

    def scores(self, answers: TaskAnswers) -> dict[str, Interval]:
        """{finetune_<metric>: score with its interval}."""
        names = list(dict.fromkeys([self.metric, *(["accuracy"] * self._classes)]))
        found: Scores = scores_with_intervals(self.test, answers, names)
        return {f"finetune_{name}": value for name, value in found.items()}

    def forgotten(self, before: TaskAnswers, after: TaskAnswers, *, seed: int) -> Interval:
        """How much of the metric is lost, rows resampled for both at once."""

        def value(answers: TaskAnswers, rows: NDArray[np.int64]) -> float:
            chosen = self.test.take(rows)
            return metric_values(chosen, answers[rows], [self.metric])[self.metric]

        def lost(rows: NDArray[np.int64]) -> float:
            return value(before, rows) - value(after, rows)

        n = len(self.test)
        found = bootstrap(lost, n, seed=seed, resamples=200)
        return Interval(lost(np.arange(n)), found.low, found.high, found.level, n)

    def score(self, answers: TaskAnswers) -> float:
        """The metric of these answers."""
        return metric_values(self.test, answers, [self.metric])[self.metric]

    def one_answer(self) -> float:
        """The score of one answer for all."""
        return majority_scores(self.test)[self.metric].mean

    @property
    def _classes(self) -> bool:
        return self.lesson.texts.task in ("binary", "multiclass")


def read_retained_tasks(
    lm: LM, spec: InjectSpec, objects: Objects | None = None
) -> list[RetainedTask]:
    """Every set of `retain_tasks`, no two of one name."""
    found = (_read_retained_task(lm, spec, source, objects) for source in spec.retain_tasks)
    return list(
        with_unique_names(found, lambda course: course.lesson.digest, option="--retain-tasks")
    )


def _read_retained_task(
    lm: LM, spec: InjectSpec, source: str, objects: Objects | None
) -> RetainedTask:
    training = task_training(spec, spec.seed)
    task, _, rows = source.partition("=")
    named = bool(rows) and (task.lower() in tasks_by_alias() or task.endswith(".toml"))
    given = {"task": task, "data": rows} if named else {"task": None, "data": source}
    lesson = load_task_split(training, **given, objects=objects)
    if len(lesson.dev) > DEV_ROWS:
        rng = np.random.default_rng([spec.seed, len(lesson.dev)])
        lesson = replace(lesson, dev=np.sort(rng.choice(lesson.dev, DEV_ROWS, replace=False)))
    question = make_plain_examples(lm, lesson, spec.max_tokens).take(lesson.test)
    name = lesson.task.name if named else lesson.texts.name
    return RetainedTask(name, lesson, training, question)


def task_training(spec: InjectSpec, seed: int) -> TrainingSpec:
    """How a fine-tune goes, the same for every model."""
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


def make_head_model(lm: LM, course: RetainedTask, seed: int) -> TaskModel:
    """The model with a linear head that starts from the seed, on the token that has seen all."""
    at: HeadPosition = "last" if lm.kind == "causal" else "first"
    most = course.training.max_tokens
    return make_task_model(lm, course.lesson, "head", at=at, max_tokens=most, seed=seed)


def finetune_on_tasks(
    lm: LM,
    courses: Sequence[RetainedTask],
    who: str,
    seed: int,
    folder: Path,
    console: Console,
    look: FinetunedCallback | None = None,
) -> dict[str, TaskAnswers]:
    """What the model answers on each set's test rows after it was fine-tuned on that set.

    `look` is called with the set's name while the model is still fine-tuned.
    """
    return {
        course.name: _finetune_on_task(lm, course, who, seed, folder, console, look)
        for course in courses
    }


def _finetune_on_task(
    lm: LM,
    course: RetainedTask,
    who: str,
    seed: int,
    folder: Path,
    console: Console,
    look: FinetunedCallback | None,
) -> TaskAnswers:
    place = folder / f"{who}-{digest_text(course.name)[:12]}"
    kept = place.with_name(f"{place.name}.json")
    try:
        return np.asarray(files.read_sealed(kept)["answers"], dtype=np.float64)
    except (Missing, Corrupt):
        console.print(f"Fine-tuning {who} on {course.name}.")
    training = course.training.model_copy(update={"seed": seed})
    pupil = make_head_model(lm, course, seed)
    params = trainable_params(pupil, training)
    with restored(params, when=True):
        identity = f"{who} {course.lesson.digest}"
        run_finetuning(pupil, course.lesson, params, training, place, console, identity=identity)
        found = pupil.predict_proba(course.lesson.test)
        if look is not None:
            look(course.name)
    if process_group().first:
        files.write_sealed(kept, {"answers": found.tolist()})
        files.remove_folder(place)
    return found


def retained_task_rows(
    courses: Sequence[RetainedTask],
    where: InjectCoordinates,
    after: Mapping[str, TaskAnswers],
    before: Mapping[str, TaskAnswers] | None = None,
) -> list[Row]:
    """The scores after each fine-tune, and beside those of the base what was forgotten."""
    rows = []
    for course in courses:
        answers = after[course.name]
        found = course.scores(answers)
        if before is not None:
            lost = course.forgotten(before[course.name], answers, seed=where.seed or 0)
            found |= {"finetune_forgetting": lost}
        stage = "before" if before is None else "after"
        rows += [where.row(stage, course.name, metric, value) for metric, value in found.items()]
    return rows


def task_baselines(
    courses: Sequence[RetainedTask], before: Mapping[int, Mapping[str, TaskAnswers]]
) -> dict[str, dict[str, float]]:
    """What the fine-tuned base reaches on each set, mean over seeds, and one answer for all."""
    return {
        course.name: {
            "base": float(np.mean([course.score(a[course.name]) for a in before.values()])),
            "one answer for all": course.one_answer(),
        }
        for course in courses
    }
