"""`cutaway graft eval`: evaluate skills on their own task and on others with the same labels."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from cutaway.core.errors import BadSpec
from cutaway.core.spec import spec_to_dict
from cutaway.core.textset import TextSet
from cutaway.methods.graft.checkpoint import open_for_skill
from cutaway.methods.graft.cost import TRIAL_ROWS, estimate_evaluation
from cutaway.methods.graft.evaluation_set import (
    EvaluationSet,
    class_names,
    evaluation_prompts,
    load_evaluation_set,
    need_prompts,
)
from cutaway.methods.graft.held_out import training_data_of
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
from cutaway.recipe.cost import Estimate, SampleSize
from cutaway.recipe.life_cycle import Context, Outcome, Run
from cutaway.recipe.open_for_spec import open_for_spec
from cutaway.recipe.result import Row
from cutaway.store.files import sha256_file
from cutaway.store.samples import split_frame, text_digests
from cutaway.training.predictions import prediction_samples
from cutaway.training.prompting import PromptedExamples, predict_from_proba, predict_proba

SPARSITY_OF_WHOLE_MODELS = {"base": 0.0, "tuned": 1.0}


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
        if not spec.task:
            need_prompts(skill)
        skill.need_base(lm)
    tuned = None
    if spec.tuned is not None:
        tuned = open_for_spec(spec.tuned, spec, context.objects, check=False)
        for skill in skills:
            need_matching_shapes(tuned.params(), skill.patch.mask, skill.shapes)
    trained_on = training_data_of(skills, spec.tuned)
    sets, notes = [], []
    for task_name, name in zip(spec.task or (None,) * len(spec.data), spec.data, strict=True):
        one, note = load_evaluation_set(
            spec, task_name, context.objects.get(name, name), skills, trained_on
        )
        sets.append(one)
        if note:
            notes.append(note)
            context.console.print(note)
    text = load_heldout_text(spec, lm, context.objects)
    return GraftEvalRequest(spec, lm, tuned, skills, sets, notes, text)


def measure(request: GraftEvalRequest, run: Run) -> Outcome:
    """Every skill on every set, compared with the base and the tuned model."""
    pairs = [(skill, c, one) for skill, c in request.labelled_skills() for one in request.sets]
    keys, done = [], run.progress.done()
    with run.console.progress("skills and sets", len(pairs)) as advance:
        for number, (skill, coordinates, one) in enumerate(pairs):
            keys.append(f"{number}: {coordinates.task} on {one.texts.name}")
            if keys[-1] not in done:
                found = evaluate_pair(request, skill, coordinates, one, run, keys[-1])
                run.progress.put(keys[-1], found)
            advance()
    rows = run.progress.rows(keys)
    rows += lm_loss_rows(request, heldout_token_rows(request.lm, request.text))
    return graft_outcome(
        "eval", rows, model=request.lm, data=request.sets[0].texts,
        summary=summarise_evaluation(request, rows), splits=evaluated_rows(request.sets),
    )  # fmt: skip


def evaluate_pair(
    request: GraftEvalRequest,
    skill: Skill,
    coordinates: GraftCoordinates,
    one: EvaluationSet,
    run: Run,
    key: str,
) -> list[Row]:
    """The rows of one skill on one set; its predictions are kept if they are wanted."""
    examples = evaluation_prompts(request.lm, skill, one, request.spec.max_tokens)
    outputs = skill_outputs(request, skill, examples)
    cells = {k: {"data": one.texts.name, "sparsity": _sparsity(skill, k)} for k in outputs}
    if run.samples is not None:
        run.samples.put(key, predictions(coordinates, cells, skill, one, examples, outputs))
    scores = skill_scores(examples, outputs)
    return [
        row
        for kind, values in scores.items()
        for row in coordinates.scores(kind, values, **cells[kind])
    ]


def estimate(request: GraftEvalRequest) -> list[Estimate]:
    """The cost: every skill on every set, with and without the skill, also in the tuned model."""
    texts = request.sets[0].texts
    few = texts.take(range(min(TRIAL_ROWS, len(texts))))
    trial = evaluation_prompts(
        request.lm, request.skills[0], replace(request.sets[0], texts=few), request.spec.max_tokens
    )
    rows = sum(len(one.texts) for one in request.sets)
    text_rows = heldout_token_rows(request.lm, request.text)
    models = len(request.skills) * (2 if request.tuned is None else 4)
    return [estimate_evaluation(request.lm, trial, rows, text_rows, models)]


def sample_size(request: GraftEvalRequest) -> SampleSize:
    """Predictions on every set: with and without each skill, also in the tuned model."""
    models = len(request.skills) * (2 if request.tuned is None else 4)
    return SampleSize(models * sum(len(one.texts) for one in request.sets))


def evaluated_rows(sets: Sequence[EvaluationSet]) -> pl.DataFrame:
    """The rows of each set that are evaluated, for splits.parquet."""
    return pl.concat(
        [
            split_frame(one.texts.name, "test", one.rows.tolist(), text_digests(one.whole))
            for one in sets
        ]
    )


def predictions(
    coordinates: GraftCoordinates, cells: Mapping[str, Mapping[str, Any]], skill: Skill,
    one: EvaluationSet, examples: PromptedExamples, outputs: Mapping[str, TaskOutputs],
) -> pl.DataFrame:  # fmt: skip
    """The predictions of every kind of model on one set, as samples."""
    digests, classes = text_digests(one.whole), class_names(skill, one)
    return pl.concat(
        [
            prediction_samples(
                {**asdict(coordinates), "kind": kind, **cells[kind]}, examples, found.probabilities,
                rows=one.rows, digests=digests, classes=classes,
            )
            for kind, found in outputs.items()
        ],
        how="vertical_relaxed",
    )  # fmt: skip


def skill_outputs(
    request: GraftEvalRequest, skill: Skill, examples: PromptedExamples
) -> dict[str, TaskOutputs]:
    """The outputs on one set by kind: base, tuned, learned (with the skill), removed."""
    lm, tuned = request.lm, request.tuned
    outputs = {"base": _outputs(lm, examples)}
    if tuned is not None:
        outputs["tuned"] = _outputs(tuned, examples)
        with skill_removed(tuned, skill):
            outputs["removed"] = _outputs(tuned, examples)
    with patched_weights(lm.params(), skill.patch):
        outputs["learned"] = _outputs(lm, examples)
    return outputs


def skill_scores(
    examples: PromptedExamples, outputs: Mapping[str, TaskOutputs]
) -> dict[str, dict[str, Any]]:
    """The scores on one set by kind of model."""
    scores = {kind: task_scores(examples, found) for kind, found in outputs.items()}
    if "tuned" in outputs:
        for kind in ("learned", "removed"):
            scores[kind] |= gain_and_agreement(
                examples, outputs[kind], outputs["base"], outputs["tuned"]
            )
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
