"""The sets that skills are evaluated on: their held-out rows, and the prompts for them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadSpec, Mismatch
from cutaway.core.textset import TextSet
from cutaway.data.load import load_text_set
from cutaway.data.tasks import LabelRule, TaskColumns, TaskFile
from cutaway.methods.graft.held_out import TrainingData, held_out_texts
from cutaway.methods.graft.skill import Skill
from cutaway.methods.graft.spec import GraftEvalSpec
from cutaway.models.lm import LM
from cutaway.training.options import COLUMN_OPTIONS
from cutaway.training.prompting import PromptedExamples, make_prompted_examples
from cutaway.training.task_split import align_classes_by_name, load_task_and_texts

ROW_NUMBERS = "row numbers"


@dataclass(frozen=True, eq=False)
class EvaluationSet:
    """Rows of a set to evaluate on, and the task that prompts them."""

    texts: TextSet
    """The rows to evaluate on."""
    task: TaskFile | None
    """None for the skill's own prompts."""
    whole: TextSet
    """The whole set."""
    rows: NDArray[np.int64]
    """Their row numbers in the set."""


def need_prompts(skill: Skill) -> None:
    """BadSpec unless the skill was learned with a template and label words."""
    mode = skill.meta.get("task", {}).get("mode")
    if mode in ("prompt", "autoregressive"):
        return
    message = f"The skill {skill.label!r} has no template and label words: "
    if mode == "head":
        raise BadSpec(
            message + "it was learned with a head. `graft attach` writes a checkpoint with that "
            "head; to evaluate it with prompts instead, give --task, one for each --data."
        )
    raise BadSpec(message + "it is stacked. Give --task, one for each --data.")


def load_evaluation_set(
    spec: GraftEvalSpec,
    task: str | None,
    source: Any,
    skills: Sequence[Skill],
    trained_on: Sequence[TrainingData],
) -> tuple[EvaluationSet, str]:
    """The rows of a set that no skill was trained on, and a note about them for the user."""
    task_file, whole = _load_set(spec, task, source)
    # An array with one entry per row follows the rows wherever they are taken.
    numbered = replace(whole, meta={**whole.meta, ROW_NUMBERS: np.arange(len(whole))})
    variants = [in_skill_classes(s, numbered) for s in skills] if task_file is None else []
    found, note = held_out_texts(numbered, variants, trained_on)
    texts = _subsample(found, spec)
    return EvaluationSet(texts, task_file, whole, texts.meta[ROW_NUMBERS]), note


def _load_set(
    spec: GraftEvalSpec, task: str | None, source: Any
) -> tuple[TaskFile | None, TextSet]:
    if task is not None:
        return load_task_and_texts(spec, task, source)
    columns = {name: getattr(spec, name) for name in COLUMN_OPTIONS}
    texts = load_text_set(
        source, **columns, seed=spec.seed, offline=spec.offline, drop_empty=spec.drop_empty
    )
    return None, texts


def _subsample(texts: TextSet, spec: GraftEvalSpec) -> TextSet:
    """At most `test_limit` rows, drawn with the seed."""
    if spec.test_limit is None or len(texts) <= spec.test_limit:
        return texts
    rng = np.random.default_rng([spec.seed, len(texts)])
    return texts.take(np.sort(rng.choice(len(texts), spec.test_limit, replace=False)))


def evaluation_prompts(
    lm: LM, skill: Skill, one: EvaluationSet, max_tokens: int | None
) -> PromptedExamples:
    """A set as prompts: the skill's own, or those of the set's task."""
    if one.task is None:
        return prompts_for_skill(lm, skill, one.texts, max_tokens)
    return make_prompted_examples(lm, one.task, one.texts, max_tokens=max_tokens)


def class_names(skill: Skill, one: EvaluationSet) -> tuple[str, ...]:
    """The classes in the order of the prompts' words."""
    texts = one.texts if one.task is not None else in_skill_classes(skill, one.texts)
    return tuple(texts.classes)


def prompts_for_skill(
    lm: LM, skill: Skill, texts: TextSet, max_tokens: int | None
) -> PromptedExamples:
    """The set with the prompts that the skill was learned with; Mismatch for other labels."""
    task, texts = skill.meta["task"], in_skill_classes(skill, texts)
    pair = "{pair}" in task["template"]
    form = TaskFile(
        name=task["name"],
        description="as the skill was learned",
        kind=texts.task,
        columns=TaskColumns(text=("text",), pair=("pair",) if pair else ()),
        classes=texts.classes,
        edits=task["edits"],
        labels=LabelRule(bounds=task.get("bounds")),
        metric=task["metric"],
    )
    return make_prompted_examples(
        lm, form, texts, template=task["template"], words=task["words"], max_tokens=max_tokens
    )


def in_skill_classes(skill: Skill, texts: TextSet) -> TextSet:
    """The set with its classes in the skill's order, matched by name; Mismatch for others.

    Labels that are the numbers from 0 on are taken in order.
    """
    classes = tuple(skill.meta["task"]["classes"])
    if not classes:
        return texts
    aligned = align_classes_by_name(texts, classes)
    if aligned is not None:
        return aligned
    if tuple(texts.classes) != tuple(str(number) for number in range(len(classes))):
        raise Mismatch(
            f"{texts.name!r} has the classes {', '.join(texts.classes) or 'none'}, the skill "
            f"{skill.label!r} the classes {', '.join(classes)}: they can't be matched. Use the "
            f"same names, number them 0 to {len(classes) - 1} in the skill's order, or give "
            "--task, one for each set, for sets with their own label words."
        )
    return replace(texts, classes=classes)
