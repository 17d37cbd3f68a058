"""`cutaway graft eval`: evaluate skills on their own task and on others with the same labels."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cutaway.core.errors import BadSpec, Mismatch
from cutaway.core.spec import spec_to_dict
from cutaway.core.textset import TextSet
from cutaway.data.load import load_text_set
from cutaway.data.tasks import TaskColumns, TaskFile
from cutaway.methods.graft.checkpoint import open_for_skill
from cutaway.methods.graft.cost import TRIAL_ROWS, estimate_evaluation
from cutaway.methods.graft.held_out import held_out_texts, training_data_of
from cutaway.methods.graft.maths.patch import need_matching_shapes, patched_weights
from cutaway.methods.graft.overlap import unique_labels
from cutaway.methods.graft.rows import GraftCoordinates
from cutaway.methods.graft.skill import Skill, load_skill
from cutaway.methods.graft.spec import GraftEvalSpec
from cutaway.methods.graft.summary import graft_outcome
from cutaway.methods.graft.task_evaluator import (
    TaskOutputs,
    TokenRows,
    gain_and_agreement,
    heldout_token_rows,
    load_heldout_text,
    mean_lm_loss,
    task_scores,
)
from cutaway.methods.graft.verdict import evaluation_verdict
from cutaway.models.lm import LM
from cutaway.recipe.cost import Estimate
from cutaway.recipe.life_cycle import Context, Outcome, Run
from cutaway.recipe.open_for_spec import open_for_spec
from cutaway.recipe.result import Row
from cutaway.store.files import sha256_file
from cutaway.training.options import COLUMN_OPTIONS
from cutaway.training.prompting import (
    PromptedExamples,
    make_prompted_examples,
    predict_from_proba,
    predict_proba,
)
from cutaway.training.task_split import align_classes_by_name, load_task_and_texts

SPARSITY_OF_WHOLE_MODELS = {"base": 0.0, "tuned": 1.0}


@dataclass(frozen=True)
class EvaluationSet:
    """A set to evaluate on, and the task that prompts it; None for the skill's own prompts."""

    texts: TextSet
    task: TaskFile | None


@dataclass(frozen=True, eq=False)
class GraftEvalRequest:
    """The open models, the skills and the sets."""

    spec: GraftEvalSpec
    lm: LM
    tuned: LM | None
    skills: Sequence[Skill]
    sets: Sequence[EvaluationSet]
    notes: Sequence[str]
    """Remarks about the rows of a set."""
    text: TextSet | None

    @property
    def identity(self) -> dict[str, Any]:
        """Skill files, models, sets, tasks and held-out text by their content."""
        tasks = [one.task for one in self.sets]
        return {
            "skills": [sha256_file(Path(file)) for file in self.spec.skill],
            "base": self.lm.identity,
            "tuned": None if self.tuned is None else self.tuned.identity,
            "data": [one.texts.digest for one in self.sets],
            "tasks": [None if task is None else spec_to_dict(task) for task in tasks],
            "text": None if self.text is None else self.text.digest,
        }

    def labelled_skills(self) -> Iterator[tuple[Skill, GraftCoordinates]]:
        """Each skill with the coordinates of its rows."""
        tuned = self.tuned.name if self.tuned else None
        for skill, label in zip(self.skills, unique_labels(self.skills), strict=True):
            yield skill, GraftCoordinates(self.lm.name, tuned, label)


def resolve(spec: GraftEvalSpec, context: Context) -> GraftEvalRequest:
    """Skills that fit the base, and the rows of each set that no skill was trained on."""
    if spec.task and len(spec.task) != len(spec.data):
        raise BadSpec(
            f"task has {len(spec.task)} entries for {len(spec.data)} sets: give one for each."
        )
    skills = [load_skill(file) for file in spec.skill]
    lm = context.objects.get(spec.base)
    lm = open_for_skill(skills[0], spec.base, spec) if lm is None else lm
    for skill in skills:
        if not spec.task and not _has_prompts(skill):
            raise BadSpec(_no_prompt_message(skill))
        skill.need_base(lm)
    tuned = None
    if spec.tuned is not None:
        tuned = open_for_spec(spec.tuned, spec, context.objects, check=False)
        for skill in skills:
            need_matching_shapes(tuned.params(), skill.patch.mask, skill.shapes)
    trained_on = training_data_of(skills, spec.tuned)
    sets, notes = [], []
    for task_name, name in zip(spec.task or (None,) * len(spec.data), spec.data, strict=True):
        task, texts = _load_set(spec, task_name, context.objects.get(name, name))
        variants = [in_skill_classes(skill, texts) for skill in skills] if task is None else []
        rows, note = held_out_texts(texts, variants, trained_on)
        sets.append(EvaluationSet(_subsample(rows, spec), task))
        if note:
            notes.append(note)
            context.console.print(note)
    text = load_heldout_text(spec, lm, context.objects)
    return GraftEvalRequest(spec, lm, tuned, skills, sets, notes, text)


def measure(request: GraftEvalRequest, run: Run) -> Outcome:
    """Every skill on every set, compared with the base and the tuned model."""
    pairs = [(skill, c, one) for skill, c in request.labelled_skills() for one in request.sets]
    rows: list[Row] = []
    with run.console.progress("skills and sets", len(pairs)) as advance:
        for skill, coordinates, one in pairs:
            for kind, scores in skill_scores(request, skill, one).items():
                cell = {"data": one.texts.name, "sparsity": _sparsity(skill, kind)}
                rows += coordinates.scores(kind, scores, **cell)
            advance()
    rows += lm_loss_rows(request, heldout_token_rows(request.lm, request.text))
    return graft_outcome(
        "eval", rows, model=request.lm, data=request.sets[0].texts,
        summary=summarise_evaluation(request, rows),
    )  # fmt: skip


def estimate(request: GraftEvalRequest) -> list[Estimate]:
    """The cost: every skill on every set, with and without the skill, also in the tuned model."""
    texts = request.sets[0].texts
    few = texts.take(range(min(TRIAL_ROWS, len(texts))))
    trial = _prompts(request, request.skills[0], replace(request.sets[0], texts=few))
    rows = sum(len(one.texts) for one in request.sets)
    text_rows = heldout_token_rows(request.lm, request.text)
    models = len(request.skills) * (2 if request.tuned is None else 4)
    return [estimate_evaluation(request.lm, trial, rows, text_rows, models)]


def _has_prompts(skill: Skill) -> bool:
    return skill.meta.get("task", {}).get("mode") in ("prompt", "autoregressive")


def _no_prompt_message(skill: Skill) -> str:
    message = f"The skill {skill.label!r} has no template and label words: "
    if skill.meta.get("task", {}).get("mode") == "head":
        return (
            message + "it was learned with a head. `graft attach` writes a checkpoint with that "
            "head; to evaluate it with prompts instead, give --task, one for each --data."
        )
    return message + "it is stacked. Give --task, one for each --data."


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


def _prompts(request: GraftEvalRequest, skill: Skill, one: EvaluationSet) -> PromptedExamples:
    """A set as prompts: the skill's own, or those of the set's task."""
    lm, limit = request.lm, request.spec.max_tokens
    if one.task is None:
        return prompts_for_skill(lm, skill, one.texts, limit)
    return make_prompted_examples(lm, one.task, one.texts, max_tokens=limit)


def skill_scores(
    request: GraftEvalRequest, skill: Skill, one: EvaluationSet
) -> dict[str, dict[str, Any]]:
    """The scores on one set by kind: base, tuned, learned (with the skill), removed."""
    lm, tuned = request.lm, request.tuned
    examples = _prompts(request, skill, one)
    outputs = {"base": _outputs(lm, examples)}
    if tuned is not None:
        outputs["tuned"] = _outputs(tuned, examples)
        with skill_removed(tuned, skill):
            outputs["removed"] = _outputs(tuned, examples)
    with patched_weights(lm.params(), skill.patch):
        outputs["learned"] = _outputs(lm, examples)
    scores = {kind: task_scores(examples, found) for kind, found in outputs.items()}
    if tuned is not None:
        value = {kind: found[examples.metric].mean for kind, found in scores.items()}
        for kind in ("learned", "removed"):
            scores[kind] |= gain_and_agreement(
                examples, outputs[kind], outputs["tuned"], value[kind], value["base"],
                value["tuned"],
            )  # fmt: skip
    return scores


def _outputs(lm: LM, examples: PromptedExamples) -> TaskOutputs:
    probabilities = predict_proba(lm, examples)
    return TaskOutputs(probabilities, predict_from_proba(examples, probabilities))


def skill_removed(tuned: LM, skill: Skill) -> AbstractContextManager[None]:
    """The tuned model with the skill's weights set back to the base's, while the context lasts."""
    return patched_weights(tuned.params(), skill.patch.reverse)


def lm_loss_rows(request: GraftEvalRequest, text_rows: TokenRows) -> list[Row]:
    """The language-model loss on held-out text, with and without each skill."""
    if not text_rows:
        return []
    seed, lm, tuned = request.spec.seed, request.lm, request.tuned
    rows, base = [], mean_lm_loss(lm, text_rows, seed)
    for skill, coordinates in request.labelled_skills():
        with patched_weights(lm.params(), skill.patch):
            losses = {"base": base, "learned": mean_lm_loss(lm, text_rows, seed)}
        if tuned is not None:
            losses["tuned"] = mean_lm_loss(tuned, text_rows, seed)
            with skill_removed(tuned, skill):
                losses["removed"] = mean_lm_loss(tuned, text_rows, seed)
        rows += [
            coordinates.row(kind, "lm_loss", loss, sparsity=_sparsity(skill, kind))
            for kind, loss in losses.items()
        ]
    return rows


def _sparsity(skill: Skill, kind: str) -> float | None:
    return SPARSITY_OF_WHOLE_MODELS.get(kind, skill.meta.get("sparsity"))


def summarise_evaluation(request: GraftEvalRequest, rows: list[Row]) -> dict[str, Any]:
    """The metric by kind of model, skill and set, and the verdict."""
    named = [one.task.metric for one in request.sets if one.task is not None]
    metric = str(named[0] if named else request.skills[0].meta["task"]["metric"])
    matrix: dict[str, dict[str, dict[str, float]]] = {}
    for row in rows:
        if row["metric"] == metric:
            line = matrix.setdefault(row["kind"], {}).setdefault(row["task"], {})
            line[row["data"]] = row["value"]
    return {
        "metric": metric,
        "matrix": matrix,
        "notes": list(request.notes),
        "verdict": evaluation_verdict(matrix, metric, request.notes),
    }
