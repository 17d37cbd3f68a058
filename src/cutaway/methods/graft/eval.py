"""`cutaway graft eval`: what skills do on their own task and on others with the same labels."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cutaway.console import Console
from cutaway.core.errors import BadSpec, Mismatch
from cutaway.core.spec import address, spec_to_dict
from cutaway.core.textset import TextSet
from cutaway.data.load import load_text_set
from cutaway.data.tasks import TaskColumns, TaskFile
from cutaway.measure.intervals import Interval, wilson
from cutaway.methods.graft.attach import open_for_skill
from cutaway.methods.graft.evaluation import heldout_token_rows, load_heldout_text, mean_lm_loss
from cutaway.methods.graft.held_out import held_out_texts, training_data_of
from cutaway.methods.graft.maths.gain import relative_gain
from cutaway.methods.graft.maths.patch import Patch, need_matching_shapes, patched_weights
from cutaway.methods.graft.overlap import unique_labels
from cutaway.methods.graft.rows import GraftCoordinates
from cutaway.methods.graft.skill import Skill, load_skill
from cutaway.methods.graft.spec import GraftEvalSpec
from cutaway.methods.graft.summary import save_graft_run
from cutaway.models.lm import LM
from cutaway.recipe.objects import Objects
from cutaway.recipe.open_for_spec import open_for_spec
from cutaway.recipe.provenance import measure_cost
from cutaway.recipe.result import Result
from cutaway.recipe.table import Row
from cutaway.store.files import sha256_file
from cutaway.store.results import find_record
from cutaway.training.prompting import (
    PromptedExamples,
    make_prompted_examples,
    predict_from_proba,
    predict_proba,
)
from cutaway.training.task_scores import scores_with_intervals
from cutaway.training.task_split import align_classes_by_name, load_task_and_texts

AnswersByKind = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class GraftEvalContext:
    """The open models, the skills and the sets."""

    spec: GraftEvalSpec
    lm: LM
    tuned: LM | None
    skills: Sequence[Skill]
    sets: Sequence[TextSet]
    tasks: Sequence[TaskFile | None]
    """What each set is asked as; None where the skill's own words ask."""
    notes: Sequence[str]
    """What is to be known about the rows of a set."""
    console: Console


def run(
    spec: GraftEvalSpec, *, console: Console | None = None, objects: Objects | None = None
) -> Result:
    """Every skill on every set, with the base beside it, and the tuned model with and without."""
    work = open_evaluation(spec, console or Console(quiet=True), objects or {})
    prose = load_heldout_text(spec, work.lm, objects)
    name = address(
        spec,
        skills=[sha256_file(Path(file)) for file in spec.skill],
        base=work.lm.identity,
        tuned=None if work.tuned is None else work.tuned.identity,
        data=[texts.digest for texts in work.sets],
        tasks=[None if task is None else spec_to_dict(task) for task in work.tasks],
        text=None if prose is None else prose.digest,
    )
    done = find_record(spec.runs, "graft", name)
    if done is not None:
        return Result(done)
    with measure_cost() as meter:
        rows = [*dataset_rows(work), *lm_loss_rows(work, heldout_token_rows(work.lm, prose))]
    return save_graft_run(
        "eval", spec, name, meter, rows, model=work.lm, data=work.sets[0],
        summary=summarise_evaluation(work, rows),
    )  # fmt: skip


def open_evaluation(
    spec: GraftEvalSpec, console: Console, given: Mapping[str, Any]
) -> GraftEvalContext:
    """Skills that fit the base, sets that fit the skills; refused before anything is measured."""
    skills = [load_skill(file) for file in spec.skill]
    base = given.get(spec.base)
    lm = open_for_skill(skills[0], spec.base, spec) if base is None else base
    for skill in skills:
        asks = skill.meta.get("task", {}).get("mode") in ("prompt", "autoregressive")
        if not asks and not spec.task:
            raise BadSpec(_no_prompt_message(skill))
        skill.need_base(lm)
    tuned = None if spec.tuned is None else _open_tuned(spec, skills)
    sources = [given.get(name, name) for name in spec.data]
    read = [
        load_task_and_texts(spec, task, source, {}) if task else (None, _load_texts(source, spec))
        for task, source in zip(_task_per_set(spec), sources, strict=True)
    ]
    taught, found = training_data_of(skills, spec.tuned), []
    for task, texts in read:
        forms = [in_skill_classes(skill, texts) for skill in skills] if task is None else []
        found.append(held_out_texts(texts, forms, taught))
    notes = [note for _, note in found if note]
    for note in notes:
        console.print(note)
    sets = [_subsample(texts, spec) for texts, _ in found]
    return GraftEvalContext(
        spec, lm, tuned, skills, sets, [task for task, _ in read], notes, console
    )


def _no_prompt_message(skill: Skill) -> str:
    """Why a skill can't ask by itself, and what to do."""
    said = f"The skill {skill.label!r} has no template and words to ask with: "
    if skill.meta.get("task", {}).get("mode") == "head":
        return (
            said + "it was learned with a head. `graft attach` makes a checkpoint that answers "
            "through it; to ask without it, in words, say with --task how each set is asked."
        )
    return said + "it is stacked. Say with --task how each set is asked, one for each --data."


def _open_tuned(spec: GraftEvalSpec, skills: Sequence[Skill]) -> LM:
    tuned = open_for_spec(str(spec.tuned), spec, check=False)
    for skill in skills:
        need_matching_shapes(tuned.params(), skill.patch.mask, skill.shapes)
    return tuned


def _task_per_set(spec: GraftEvalSpec) -> Sequence[str | None]:
    if spec.task and len(spec.task) != len(spec.data):
        raise BadSpec(f"task has {len(spec.task)} entries for {len(spec.data)} sets: one for each.")
    return spec.task or (None,) * len(spec.data)


def _load_texts(source: Any, spec: GraftEvalSpec) -> TextSet:
    return load_text_set(source, seed=spec.seed, offline=spec.offline, drop_empty=spec.drop_empty)


def _subsample(texts: TextSet, spec: GraftEvalSpec) -> TextSet:
    """At most so many rows as the spec allows."""
    if spec.test_limit is None or len(texts) <= spec.test_limit:
        return texts
    rng = np.random.default_rng([spec.seed, len(texts)])
    return texts.take(np.sort(rng.choice(len(texts), spec.test_limit, replace=False)))


def prompts_for_skill(
    lm: LM, skill: Skill, texts: TextSet, max_tokens: int | None
) -> PromptedExamples:
    """The set asked as the skill was learned; Mismatch when its labels are others."""
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

    Labels that are plain numbers from 0 on are taken in order.
    """
    classes = tuple(skill.meta["task"]["classes"])
    if not classes:
        return texts
    found = align_classes_by_name(texts, classes)
    if found is not None:
        return found
    if tuple(texts.classes) != tuple(str(number) for number in range(len(classes))):
        raise Mismatch(
            f"{texts.name!r} has the classes {', '.join(texts.classes) or 'none'}, the skill "
            f"{skill.label!r} answers with {', '.join(classes)}: which is which can't be told. "
            f"Name them alike, number them 0 to {len(classes) - 1} in the skill's order, or give "
            "--task, one for each set, for sets with words of their own."
        )
    return replace(texts, classes=classes)


def dataset_rows(work: GraftEvalContext) -> list[Row]:
    """The scores of base, tuned model and skill on every set."""
    rows: list[Row] = []
    pairs = [
        (skill, label, task, texts)
        for skill, label in zip(work.skills, unique_labels(work.skills), strict=True)
        for task, texts in zip(work.tasks, work.sets, strict=True)
    ]
    with work.console.progress("skills and sets", len(pairs)) as advance:
        for skill, label, task, texts in pairs:
            asked = (
                prompts_for_skill(work.lm, skill, texts, work.spec.max_tokens)
                if task is None
                else make_prompted_examples(work.lm, task, texts, max_tokens=work.spec.max_tokens)
            )
            said = {"base": predict_proba(work.lm, asked)}
            if work.tuned is not None:
                said["tuned"] = predict_proba(work.tuned, asked)
                with skill_removed(work.tuned, skill):
                    said["removed"] = predict_proba(work.tuned, asked)
            with patched_weights(work.lm.params(), skill.patch):
                said["learned"] = predict_proba(work.lm, asked)
            where = GraftCoordinates(work.lm.name, work.tuned.name if work.tuned else None, label)
            for kind, found in score_models(asked, said).items():
                place = {"data": texts.name, "sparsity": _sparsity_of(skill, kind)}
                rows += where.scores(kind, found, **place)
            advance()
    return rows


def skill_removed(tuned: LM, skill: Skill) -> AbstractContextManager[None]:
    """The tuned model with the skill's weights set back to the base's, for a while."""
    patch = skill.patch
    return patched_weights(tuned.params(), Patch(patch.mask, patch.after, patch.before))


def score_models(asked: PromptedExamples, said: AnswersByKind) -> dict[str, dict[str, Any]]:
    """Metric, calibration, gain and agreement of every kind of model."""
    names = [asked.metric, *(("accuracy", "ece") if asked.task != "regression" else ())]
    found: dict[str, dict[str, Any]] = {
        kind: dict(scores_with_intervals(asked, one, list(dict.fromkeys(names))))
        for kind, one in said.items()
    }
    if "tuned" in said:
        before, after = (found[kind][asked.metric].mean for kind in ("base", "tuned"))
        for kind in ("learned", "removed"):
            kept = relative_gain(found[kind][asked.metric].mean, before, after)
            found[kind]["relative_gain"] = kept
        if asked.task != "regression":
            for kind in ("learned", "removed"):
                same = predict_from_proba(asked, said[kind]) == predict_from_proba(
                    asked, said["tuned"]
                )
                found[kind]["agreement"] = wilson(int(same.sum()), len(asked))
    return found


def lm_loss_rows(work: GraftEvalContext, prose: tuple[tuple[int, ...], ...]) -> list[Row]:
    """What each skill costs the model's own language."""
    if not prose:
        return []
    seed, rows = work.spec.seed, []
    base = mean_lm_loss(work.lm, prose, seed)
    for skill, label in zip(work.skills, unique_labels(work.skills), strict=True):
        where = GraftCoordinates(work.lm.name, work.tuned.name if work.tuned else None, label)
        with patched_weights(work.lm.params(), skill.patch):
            after = mean_lm_loss(work.lm, prose, seed)
        losses: dict[str, Interval | None] = {"base": base, "learned": after}
        if work.tuned is not None:
            losses["tuned"] = mean_lm_loss(work.tuned, prose, seed)
            with skill_removed(work.tuned, skill):
                losses["removed"] = mean_lm_loss(work.tuned, prose, seed)
        rows += [
            where.row(kind, "lm_loss", loss, sparsity=_sparsity_of(skill, kind))
            for kind, loss in losses.items()
        ]
    return rows


def summarise_evaluation(work: GraftEvalContext, rows: list[Row]) -> dict[str, Any]:
    """The matrix of the metric by skill and set, for every kind of model."""
    named = [task.metric for task in work.tasks if task is not None]
    metric = str(named[0] if named else work.skills[0].meta["task"]["metric"])
    matrix: dict[str, dict[str, dict[str, float]]] = {}
    for row in rows:
        if row["metric"] == metric:
            line = matrix.setdefault(row["kind"], {}).setdefault(row["task"], {})
            line[row["data"]] = row["value"]
    said = [
        f"{task} on {data}: {metric} {value:.3f} with the skill, "
        f"{matrix['base'][task][data]:.3f} without." + _removal_sentence(matrix, task, data)
        for task, line in matrix["learned"].items()
        for data, value in line.items()
    ]
    verdict = [*said[:12], *work.notes]
    return {"metric": metric, "matrix": matrix, "notes": list(work.notes), "verdict": verdict}


def _removal_sentence(matrix: Mapping[str, Any], task: str, data: str) -> str:
    if "removed" not in matrix:
        return ""
    tuned, left = (matrix[kind][task][data] for kind in ("tuned", "removed"))
    return f" The tuned model has {tuned:.3f}, and {left:.3f} when the skill is taken out of it."


def _sparsity_of(skill: Skill, kind: str) -> float | None:
    return {"base": 0.0, "tuned": 1.0}.get(kind, skill.meta.get("sparsity"))
