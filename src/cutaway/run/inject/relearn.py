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

from cutaway.core.digest import digest_text
from cutaway.core.errors import Corrupt, Missing
from cutaway.core.spec import build
from cutaway.data.tasks import spellings
from cutaway.measure.intervals import Interval, bootstrap
from cutaway.models.lm import LM
from cutaway.run.apart import apart
from cutaway.run.finetune_rows import Scores, majority, scores_of, values_of
from cutaway.run.inject.rows import Where
from cutaway.run.lesson import Lesson, read_lesson
from cutaway.run.objects import Objects
from cutaway.run.pupil import Place, Pupil, enrol, plain_question
from cutaway.run.question import Question
from cutaway.run.screen import Screen
from cutaway.run.specs.finetune import Training
from cutaway.run.specs.inject import InjectSpec
from cutaway.run.table import Row
from cutaway.run.teaching import given_back, teach, trained_params
from cutaway.run.team import team
from cutaway.store import files

# Rows looked at while a fine-tune goes on, and at its end.
DEV_ROWS, TEST_ROWS = 200, 1000
Answers = NDArray[np.float64]
Look = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Course:
    """A set to fine-tune on, how, and its test rows as questions."""

    name: str
    lesson: Lesson
    training: Training
    test: Question

    @property
    def metric(self) -> str:
        """What it is measured by."""
        return self.lesson.task.metric

    def scores(self, answers: Answers) -> dict[str, Interval]:
        """{finetune_<metric>: score with its interval}."""
        names = list(dict.fromkeys([self.metric, *(["accuracy"] * self._classes)]))
        found: Scores = scores_of(self.test, answers, names)
        return {f"finetune_{name}": value for name, value in found.items()}

    def forgotten(self, before: Answers, after: Answers, *, seed: int) -> Interval:
        """How much of the metric is lost, rows resampled for both at once."""

        def value(answers: Answers, rows: NDArray[np.int64]) -> float:
            chosen = self.test.take(rows)
            return values_of(chosen, answers[rows], [self.metric])[self.metric]

        def lost(rows: NDArray[np.int64]) -> float:
            return value(before, rows) - value(after, rows)

        n = len(self.test)
        found = bootstrap(lost, n, seed=seed, resamples=200)
        return Interval(lost(np.arange(n)), found.low, found.high, found.level, n)

    def score(self, answers: Answers) -> float:
        """The metric of these answers."""
        return values_of(self.test, answers, [self.metric])[self.metric]

    def one_answer(self) -> float:
        """The score of one answer for all."""
        return majority(self.test)[self.metric].mean

    @property
    def _classes(self) -> bool:
        return self.lesson.texts.task in ("binary", "multiclass")


def read_courses(lm: LM, spec: InjectSpec, objects: Objects | None = None) -> list[Course]:
    """Every set of `retain_tasks`, no two of one name."""
    found = (_course(lm, spec, source, objects) for source in spec.retain_tasks)
    return list(apart(found, lambda course: course.lesson.digest, option="--retain-tasks"))


def _course(lm: LM, spec: InjectSpec, source: str, objects: Objects | None) -> Course:
    training = training_of(spec, spec.seed)
    task, _, rows = source.partition("=")
    named = bool(rows) and (task.lower() in spellings() or task.endswith(".toml"))
    given = {"task": task, "data": rows} if named else {"task": None, "data": source}
    lesson = read_lesson(training, **given, objects=objects)
    if len(lesson.dev) > DEV_ROWS:
        rng = np.random.default_rng([spec.seed, len(lesson.dev)])
        lesson = replace(lesson, dev=np.sort(rng.choice(lesson.dev, DEV_ROWS, replace=False)))
    question = plain_question(lm, lesson, spec.max_tokens).take(lesson.test)
    name = lesson.task.name if named else lesson.texts.name
    return Course(name, lesson, training, question)


def training_of(spec: InjectSpec, seed: int) -> Training:
    """How a fine-tune goes, the same for every model."""
    return build(
        Training,
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


def pupil_of(lm: LM, course: Course, seed: int) -> Pupil:
    """The model with a linear head that starts from the seed, on the token that has seen all."""
    at: Place = "last" if lm.kind == "causal" else "first"
    most = course.training.max_tokens
    return enrol(lm, course.lesson, "head", at=at, max_tokens=most, seed=seed)


def learn(
    lm: LM,
    courses: Sequence[Course],
    who: str,
    seed: int,
    folder: Path,
    screen: Screen,
    look: Look | None = None,
) -> dict[str, Answers]:
    """What the model answers on each set's test rows after it was fine-tuned on that set.

    `look` is called with the set's name while the model is still fine-tuned.
    """
    return {course.name: _learn(lm, course, who, seed, folder, screen, look) for course in courses}


def _learn(
    lm: LM, course: Course, who: str, seed: int, folder: Path, screen: Screen, look: Look | None
) -> Answers:
    place = folder / f"{who}-{digest_text(course.name)[:12]}"
    kept = place.with_name(f"{place.name}.json")
    try:
        return np.asarray(files.read_sealed(kept)["answers"], dtype=np.float64)
    except (Missing, Corrupt):
        screen.say(f"Fine-tuning {who} on {course.name}.")
    training = course.training.model_copy(update={"seed": seed})
    pupil = pupil_of(lm, course, seed)
    params = trained_params(pupil, training)
    with given_back(params, when=True):
        identity = f"{who} {course.lesson.digest}"
        teach(pupil, course.lesson, params, training, place, screen, identity=identity)
        found = pupil.answers(course.lesson.test)
        if look is not None:
            look(course.name)
    if team().first:
        files.write_sealed(kept, {"answers": found.tolist()})
        files.drop_folder(place)
    return found


def task_rows(
    courses: Sequence[Course],
    where: Where,
    after: Mapping[str, Answers],
    before: Mapping[str, Answers] | None = None,
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


def baselines_of(
    courses: Sequence[Course], before: Mapping[int, Mapping[str, Answers]]
) -> dict[str, dict[str, float]]:
    """What the fine-tuned base reaches on each set, mean over seeds, and one answer for all."""
    return {
        course.name: {
            "base": float(np.mean([course.score(a[course.name]) for a in before.values()])),
            "one answer for all": course.one_answer(),
        }
        for course in courses
    }
