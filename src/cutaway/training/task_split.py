"""A task, its rows, and which of them are for training, dev and test."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.core.digest import digest_json
from cutaway.core.errors import BadData, BadSpec, Mismatch
from cutaway.core.spec import spec_to_dict
from cutaway.core.textset import TextSet
from cutaway.data.load import load_task, load_text_set
from cutaway.data.task_rows import class_indices
from cutaway.data.tasks import TaskColumns, TaskFile, find_task, tasks_by_alias
from cutaway.measure.splits import SplitPlan, split
from cutaway.recipe.objects import Objects
from cutaway.training.options import COLUMN_OPTIONS, LabelledDataSpec, TrainingSpec

CLASSIFICATION_KINDS = ("binary", "multiclass")
TRAINABLE_KINDS = (*CLASSIFICATION_KINDS, "regression")
DEFAULT_METRICS = {"regression": "pearson"}
"""The metric of data without a task, if it isn't accuracy."""


@dataclass(frozen=True, eq=False)
class TaskSplit:
    """A task and its rows; `train`, `dev` and `test` are row numbers that share none."""

    task: TaskFile
    texts: TextSet
    train: NDArray[np.int64]
    dev: NDArray[np.int64]
    test: NDArray[np.int64]
    shots: int | None = None
    data_seed: int | None = None
    """The seed that selected the rows, if they were selected."""

    @property
    def training_data(self) -> dict[str, Any]:
        """What to record with weights trained on it: the data, and how its rows were split."""
        data = {"name": self.texts.name, "rows": len(self.texts), "digest": self.texts.digest}
        return {**data, "shots": self.shots, "data_seed": self.data_seed}

    @property
    def digest(self) -> str:
        """A digest of task and rows."""
        return digest_json({"task": spec_to_dict(self.task), "rows": self.texts.digest})


def load_task_split(
    spec: TrainingSpec,
    *,
    task: str | None,
    data: str | None,
    objects: Objects | None = None,
) -> TaskSplit:
    """The task and its rows, split into train, dev and test as the spec says."""
    task_file, texts = load_task_and_texts(spec, task, (objects or {}).get(data or "", data))
    if texts.labels is None or texts.task not in TRAINABLE_KINDS:
        raise BadData(
            f"{texts.name!r} has labels of kind {texts.task!r}; fine-tuning needs one of "
            f"{', '.join(TRAINABLE_KINDS)}."
        )
    train, dev, test = split_task_rows(texts, spec)
    return TaskSplit(task_file, texts, train, dev, test, spec.shots, spec.data_seed)


def load_task_and_texts(
    spec: LabelledDataSpec, task: str | None, data: Any
) -> tuple[TaskFile, TextSet]:
    """A task and its rows; data alone gets a task made from its labels."""
    named = task or None
    if named is None and isinstance(data, str):
        is_task = data.lower() in tasks_by_alias() or data.endswith(".toml")
        named = data if is_task else None
    if named is None and data is None:
        raise BadSpec("task and data are both missing: give --task, or --data, or both.")
    columns = {name: getattr(spec, name) for name in COLUMN_OPTIONS}
    options: dict[str, Any] = {**columns, "seed": spec.seed, "offline": spec.offline}
    if named is None:
        texts = load_text_set(data, drop_empty=spec.drop_empty, **options)
        return task_from_labels(texts), texts
    task_file = find_task(named)
    if isinstance(data, str) and data.startswith("gen:"):
        return task_file, align_classes(task_file, load_text_set(data, **options))
    # `--task sst2 --data sst2` means the task's own rows, unless there is a folder of that name.
    rows = None if data == named and not Path(data).is_dir() else data
    texts = load_task(task_file, data=rows, drop_empty=spec.drop_empty, **options)
    return task_file, align_classes(task_file, texts)


def align_classes(task: TaskFile, texts: TextSet) -> TextSet:
    """The texts with the task's classes in its order; Mismatch if they have other labels.

    Classes are matched by name, or by another spelling or number in the task's file.
    """
    if not task.classes or not {task.kind, texts.task} & set(CLASSIFICATION_KINDS):
        return texts
    aligned = align_classes_by_name(texts, task.classes)
    if aligned is None:
        aligned = _renumbered(texts, class_indices(task, texts.classes), task.classes)
    if aligned is None:
        raise Mismatch(
            f"{texts.name!r} has the classes {', '.join(texts.classes) or 'none'}, task "
            f"{task.name!r} has {', '.join(task.classes)}: these are not its rows. Use the "
            "same class names, give rows of this task, or leave out --task."
        )
    return aligned


def align_classes_by_name(texts: TextSet, classes: Sequence[str]) -> TextSet | None:
    """The texts with their classes in this order; None unless the names match, ignoring case."""
    if tuple(texts.classes) == tuple(classes):
        return texts
    place = {name.casefold(): number for number, name in enumerate(classes)}
    # Names that differ only in case are ambiguous.
    if len(place) < len(classes):
        return None
    return _renumbered(texts, [place.get(name.casefold()) for name in texts.classes], classes)


def _renumbered(
    texts: TextSet, numbers: Sequence[int | None], classes: Sequence[str]
) -> TextSet | None:
    """The texts with new class numbers; None unless the numbers are a permutation."""
    labels = np.asarray(texts.labels)
    if set(numbers) != set(range(len(classes))) or len(numbers) > len(classes) or labels.ndim != 1:
        return None
    return replace(texts, labels=np.array(numbers)[labels], classes=tuple(classes))


def task_from_labels(texts: TextSet) -> TaskFile:
    """A task for data that has none: its classes, without templates and label words."""
    pair = ("pair",) if texts.pairs else ()
    return TaskFile(
        name=texts.name,
        description=f"The labels of {texts.name}.",
        kind=texts.task,
        columns=TaskColumns(text=("text",), pair=pair, label=("label",)),
        classes=tuple(texts.classes),
        metric=DEFAULT_METRICS.get(texts.task, "accuracy"),
    )


SplitIndices = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def split_task_rows(texts: TextSet, spec: TrainingSpec) -> SplitIndices:
    """Row numbers for train, dev and test.

    With shots: K training rows of each class, K dev rows, and the test split (or the rest) for
    testing; a regression counts as two classes, its lower and its upper half. Without: the splits
    that come with the data, or 70/10/20.
    """
    parts = _fixed_parts(texts)
    labels, kind = np.asarray(texts.labels), texts.task
    have = set() if parts is None else set(parts.tolist())
    protocol = "fixed" if {"train", "test"} <= have else "repeats"
    if spec.shots is not None:
        protocol = "kshot"
        if kind == "regression":
            labels, kind = (labels > (labels.min() + labels.max()) / 2).astype(np.int64), "binary"
    plan = SplitPlan(protocol, seed=spec.data_seed, repeats=1, shots=spec.shots or 1)
    (made,) = split(labels, plan, task=kind, parts=parts, classes=texts.classes)
    return made.train, made.val, _limited_test(made.test, spec)


def _fixed_parts(texts: TextSet) -> NDArray[np.str_] | None:
    """The splits of the data; a dev split without a test split becomes the test split, as in the
    paper."""
    if texts.parts is None:
        return None
    have = set(texts.parts.tolist())
    if "test" in have or "dev" not in have:
        return texts.parts if "train" in have else None
    return np.where(texts.parts == "dev", "test", texts.parts)


def _limited_test(rows: NDArray[np.int64], spec: TrainingSpec) -> NDArray[np.int64]:
    if spec.test_limit is None or len(rows) <= spec.test_limit:
        return rows
    rng = np.random.default_rng([spec.data_seed, len(rows)])
    return np.sort(rng.choice(rows, spec.test_limit, replace=False))
