"""The tasks of a run: rows, prompts, words and splits, from task files and options."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.core.digest import digest_json
from cutaway.core.errors import BadData, BadSpec
from cutaway.core.textset import TextSet
from cutaway.data.labels import check_learnable
from cutaway.data.load import load_task, load_text_set
from cutaway.data.main_metric import main_metric
from cutaway.data.tasks import SplitProtocol, TaskFile, find_task
from cutaway.measure.splits import Split, check_two_classes, repeat_rng
from cutaway.measure.strata import stratified_cut
from cutaway.methods.nextword.maths.classify import stratified_folds
from cutaway.methods.nextword.spec import NextwordSpec
from cutaway.recipe.objects import Objects, with_unique_names
from cutaway.training.task_split import align_classes

WordList = tuple[str, ...]
# For data without a task and without parts.
DEFAULT_PROTOCOL = SplitProtocol(kind="repeats", repeats=5, dev_share=0.0, test_share=0.2)


@dataclass(frozen=True)
class NextwordTask:
    """A classification task with its rows, prompts and words."""

    name: str
    texts: TextSet
    prompts: WordList
    """Prompts to append to the texts, measured separately; "" is no prompt."""
    template: str
    edits: dict[Any, str]
    words: dict[str, WordList]
    """The words of the features subset, classwords and posneg; () if the task has none."""
    answers: tuple[WordList, ...]
    """Word lists with one word per class for zero-shot, in order of preference."""
    protocol: SplitProtocol
    metric: str = "accuracy"
    """The main metric."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """The class number of each row."""
        return np.asarray(self.texts.labels, dtype=np.int64)

    @property
    def identity(self) -> list[Any]:
        """Everything that changes its results: rows, prompts, words, protocol."""
        words = {name: list(some) for name, some in self.words.items()}
        protocol = self.protocol.model_dump(mode="json")
        prompts = [list(self.prompts), self.template, dict(self.edits)]
        answers = [list(some) for some in self.answers]
        return [self.texts.digest, *prompts, words, answers, protocol]


def nextword_tasks(spec: NextwordSpec, objects: Objects) -> list[NextwordTask]:
    """Load every task of the spec; each gets a unique name."""
    option = "--task" if spec.task else "--data"
    tasks = _tasks_from_spec(spec, objects)
    return list(with_unique_names(tasks, lambda t: digest_json(t.identity), option=option))


def _tasks_from_spec(spec: NextwordSpec, objects: Objects) -> list[NextwordTask]:
    if not spec.task:
        return [_task_from_source(spec, None, objects.get(name, name)) for name in spec.data]
    sources = [objects.get(name, name) for name in spec.data] or [None] * len(spec.task)
    tasks = [find_task(objects.get(name, name)) for name in spec.task]
    return [_task_from_source(spec, task, data) for task, data in zip(tasks, sources, strict=True)]


def _task_from_source(spec: NextwordSpec, task: TaskFile | None, data: Any) -> NextwordTask:
    texts = _load_texts(spec, task, data)
    if texts.task not in ("binary", "multiclass"):
        raise BadData(
            f"nextword needs class labels, and {texts.name!r} is a {texts.task} set. "
            "Give data whose labels are classes."
        )
    protocol = _protocol(spec, task, texts)
    if protocol.kind == "fixed":
        # Rows that are neither for training nor for testing need no forward pass.
        parts = np.asarray(texts.parts)
        used = np.isin(parts, ["train", _test_part(set(parts.tolist()))])
        texts = texts.take(np.flatnonzero(used))
    return NextwordTask(
        name=texts.name if task is None else task.name,
        texts=texts,
        prompts=_prompts(spec, task, texts.name),
        template=spec.template or (task.template if task else ""),
        edits=dict(task.edits) if task else {},
        words=_word_lists(spec, task),
        answers=_zeroshot_word_lists(spec, task, len(texts.classes)),
        protocol=protocol,
        metric=main_metric(texts, spec.metric),
    )


def _load_texts(spec: NextwordSpec, task: TaskFile | None, data: Any) -> TextSet:
    shared: dict[str, Any] = {
        "limit": spec.limit, "least": _rows_per_class(spec), "seed": spec.seed,
        "offline": spec.offline, "chat": spec.chat,
    }  # fmt: skip
    columns: dict[str, Any] = {"text_column": spec.text_column, "label_column": spec.label_column}
    is_loaded = isinstance(data, TextSet) or str(data).startswith("gen:")
    if task is None:
        return check_learnable(load_text_set(data, **columns, **shared))
    shared |= columns
    texts = check_learnable(
        load_text_set(data, **shared) if is_loaded else load_task(task, data=data, **shared)
    )
    # The user's class words are in the order of the data's own classes.
    if not spec.class_words:
        return align_classes(task, texts)
    if task.classes and len(texts.classes) > len(task.classes):
        raise BadData(
            f"{texts.name!r} has the {len(texts.classes)} classes {', '.join(texts.classes)}, and "
            f"the task {task.name!r} has {len(task.classes)}: {', '.join(task.classes)}. "
            "Give data of this task, or leave --task out."
        )
    return texts


def _rows_per_class(spec: NextwordSpec) -> int:
    """The rows of a class that cross-validation of a training part can't do without."""
    return math.ceil(spec.folds / (1 - (spec.test_share or DEFAULT_PROTOCOL.test_share)))


def _prompts(spec: NextwordSpec, task: TaskFile | None, name: str) -> WordList:
    own = spec.prompt_text if spec.prompt_text is not None else (task.prompt if task else "")
    if spec.prompt and not own:
        what = f"The task {task.name!r}" if task else f"{name!r}, without a task,"
        raise BadSpec(f"{what} has no prompt: give one with --prompt-text, or use --no-prompt.")
    if spec.prompt is None:
        return ("", own) if own else ("",)
    return (own,) if spec.prompt else ("",)


def _word_lists(spec: NextwordSpec, task: TaskFile | None) -> dict[str, WordList]:
    return {
        "subset": spec.subset_words or (task.subset_words if task else ()),
        "classwords": spec.class_words or (task.class_words if task else ()),
        "posneg": task.posneg if task else (),
    }


def _zeroshot_word_lists(
    spec: NextwordSpec, task: TaskFile | None, classes: int
) -> tuple[WordList, ...]:
    known = {
        "class_words": spec.class_words or (task.class_words if task else ()),
        "label_words": task.label_words if task else (),
        "posneg": task.posneg if task else (),
    }
    # The user's class words have priority over the task's words.
    first = "class_words" if spec.class_words else spec.zeroshot_words
    chosen = known.values() if first == "auto" else [known[first]]
    return tuple(words for words in chosen if len(words) == classes)


def _protocol(spec: NextwordSpec, task: TaskFile | None, texts: TextSet) -> SplitProtocol:
    """The task's protocol; random splits if it needs parts that the data doesn't have."""
    wanted = task.protocol if task else SplitProtocol()
    parts = set() if texts.parts is None else set(texts.parts.tolist())
    if wanted.kind == "fixed" and not ({"train", "test"} <= parts or {"train", "dev"} <= parts):
        wanted = DEFAULT_PROTOCOL
    if wanted.kind == "fixed" and spec.repeats is None and spec.test_share is None:
        return wanted
    base = DEFAULT_PROTOCOL if wanted.kind == "fixed" else wanted
    repeats, share = spec.repeats or base.repeats, spec.test_share or base.test_share
    return base.model_copy(update={"repeats": repeats, "test_share": share})


def task_splits(task: NextwordTask, spec: NextwordSpec) -> list[Split]:
    """The splits; `val` is one fold of the training rows, for the baselines' hyperparameters."""
    splits = []
    for repeat, train, test in SPLITTERS[task.protocol.kind](task, spec.seed):
        folds = stratified_folds(
            task.labels, train, spec.folds, seed=spec.seed, split=repeat, names=task.texts.classes
        )
        tested = len(test) if task.protocol.kind == "fixed" else None
        splits.append(Split(repeat, train, folds[0], test, tested=tested))
    return splits


SplitRows = tuple[int, NDArray[Any], NDArray[Any]]


def _fixed(task: NextwordTask, seed: int) -> Iterator[SplitRows]:
    texts = task.texts
    part = _test_part(set(np.asarray(texts.parts).tolist()))
    test = texts.rows_of(part)
    check_two_classes(task.labels[test], part, texts.classes, instead="--repeats 5")
    yield 0, texts.rows_of("train"), test


def _test_part(parts: set[str]) -> str:
    """The part for testing: dev if there is no test part."""
    return "test" if "test" in parts else "dev"


def _repeats(task: NextwordTask, seed: int) -> Iterator[SplitRows]:
    share, labels = task.protocol.test_share, task.labels
    for repeat in range(task.protocol.repeats):
        train, test = stratified_cut(
            np.arange(len(labels)), labels, (1 - share, share), repeat_rng(seed, repeat)
        )
        yield repeat, train, test


def _kfold(task: NextwordTask, seed: int) -> Iterator[SplitRows]:
    rows = np.arange(len(task.labels))
    folds = stratified_folds(
        task.labels, rows, task.protocol.folds, seed=seed, split=0, names=task.texts.classes
    )
    for k, test in enumerate(folds):
        yield k, np.setdiff1d(rows, test), test


SPLITTERS = {"fixed": _fixed, "repeats": _repeats, "kfold": _kfold}
