"""`cutaway finetune`: fine-tune a model on a task and keep the checkpoint that is best on dev."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from cutaway.core.errors import BadSpec
from cutaway.engine.process_group import process_group
from cutaway.measure.shared_rows import BlockScores
from cutaway.methods.finetune.rows import FINETUNE_SCHEMA, FinetuneCoordinates, curve_rows
from cutaway.methods.finetune.spec import FinetuneSpec
from cutaway.methods.finetune.verdict import finetune_verdict
from cutaway.models.lm import LM, model_facts
from cutaway.recipe.cost import Estimate, SampleSize
from cutaway.recipe.life_cycle import Context, Outcome, Run
from cutaway.recipe.open_for_spec import open_spec_model
from cutaway.recipe.output import CheckpointFolder
from cutaway.recipe.result import table
from cutaway.store.records import run_folder
from cutaway.store.samples import text_digests
from cutaway.training.cost import estimate_training
from cutaway.training.finetune_loop import restored, run_finetuning
from cutaway.training.loop import TrainingResult
from cutaway.training.predictions import prediction_samples, split_table
from cutaway.training.task_model import TaskModel, finetune_mode, make_task_model
from cutaway.training.task_scores import (
    Scores,
    block_scores,
    constant_probabilities,
    majority_scores,
    scores_with_intervals,
)
from cutaway.training.task_split import TaskSplit, load_task_split
from cutaway.training.trainable_params import trainable_params

OUTPUT = CheckpointFolder("finetune")


@dataclass(frozen=True, eq=False)
class FinetuneRequest:
    """The model with the task's examples, and their split into train, dev and test."""

    spec: FinetuneSpec
    model: TaskModel
    split: TaskSplit
    keep_weights: bool
    """Whether the model was given as an object, so its weights are restored afterwards."""

    @property
    def identity(self) -> dict[str, Any]:
        """The model, the task with its rows, and the mode."""
        return {"model": self.lm.identity, "data": self.split.digest, "mode": self.model.mode}

    @property
    def lm(self) -> LM:
        """The language model that is trained."""
        return self.model.lm

    @property
    def coordinates(self) -> FinetuneCoordinates:
        """The coordinates that all rows of the run share."""
        spec, task = self.spec, self.split.task.name
        return FinetuneCoordinates(self.lm.name, task, self.model.mode, spec.shots, spec.data_seed)


@dataclass(frozen=True, eq=False)
class FinetuneOutcome:
    """A finished training: its parameters, its curve, and the test scores by kind of model."""

    params: Mapping[str, nn.Parameter]
    trained: TrainingResult
    scores: Mapping[str, Scores]
    blocks: Mapping[str, BlockScores]
    """The task's metric by kind of model and blocks of test rows."""


def resolve(spec: FinetuneSpec, context: Context) -> FinetuneRequest:
    """The model and the task; BadSpec for a mode that the model can't be trained in."""
    lm = open_spec_model(spec, context.objects)
    mode = finetune_mode(lm, spec.mode)
    if spec.at != "auto" and mode != "head":
        raise BadSpec(f"at is for --mode head, got {spec.at!r} with mode {mode!r}.")
    split = load_task_split(spec, task=spec.task, data=spec.data, objects=context.objects)
    model = make_task_model(
        lm, split, mode, template=spec.template, words=spec.words, at=spec.at,
        max_tokens=spec.max_tokens, seed=spec.seed,
    )  # fmt: skip
    return FinetuneRequest(spec, model, split, spec.model in context.objects)


def measure(request: FinetuneRequest, run: Run) -> Outcome:
    """Test scores before and after training, the training curve, and the checkpoint."""
    spec, texts, coordinates = request.spec, request.split.texts, request.coordinates
    params = trainable_params(request.model, spec)
    with restored(params, when=request.keep_weights):
        done = train_and_score(request, params, run)
        note = checkpoint_note(request, done, run.address)
        # Other processes have the same weights: one checkpoint is enough.
        first = process_group().first
        files = OUTPUT.write(spec, run.scratch, request.model.save, note) if first else {}
    steps = {"base": 0, "majority": 0, "tuned": done.trained.best_step}
    rows = [
        row
        for kind, scores in done.scores.items()
        for row in coordinates.rows(kind, steps[kind], "test", scores)
    ]
    metric = request.split.task.metric
    constant = {kind: done.scores[kind][metric].mean for kind in ("base", "majority")}
    return Outcome(
        rows=table(rows + curve_rows(coordinates, done.trained.curve), FINETUNE_SCHEMA),
        summary=summarise_finetuning(request, done, run.address),
        baselines={f"{coordinates.base} on {texts.name}": constant},
        model=model_facts(request.lm),
        data={"name": texts.name, "rows": len(texts), "digest": texts.digest},
        files=files,
        splits=split_table(request.split),
    )


def train_and_score(
    request: FinetuneRequest, params: Mapping[str, nn.Parameter], run: Run
) -> FinetuneOutcome:
    """Train the parameters in place; scores on the test rows before and after."""
    model, test = request.model, request.split.test
    examples = model.examples.take(test)
    before = model.predict_proba(test)
    trained = run_finetuning(
        model, request.split, params, request.spec, run.folder / "training", run.console,
        identity=run.address,
    )  # fmt: skip
    found = {"tuned": model.predict_proba(test), "base": before}
    keep_predictions(request, found, run)
    scores = {kind: scores_with_intervals(examples, proba) for kind, proba in found.items()}
    scores["majority"] = majority_scores(examples)
    constant = {"majority": constant_probabilities(examples)}
    blocks = {kind: block_scores(examples, proba) for kind, proba in (found | constant).items()}
    model.module.eval()
    return FinetuneOutcome(params, trained, scores, blocks)


def keep_predictions(
    request: FinetuneRequest, found: Mapping[str, NDArray[np.float64]], run: Run
) -> None:
    """The test predictions by kind of model as samples, if they are wanted."""
    # Other processes have the same predictions.
    if run.samples is None or not process_group().first:
        return
    texts, test = request.split.texts, request.split.test
    digests, examples = text_digests(texts), request.model.examples.take(test)
    for kind, probabilities in found.items():
        coordinates = {**asdict(request.coordinates), "kind": kind, "data": texts.name}
        table = prediction_samples(
            coordinates, examples, probabilities, rows=test, digests=digests, classes=texts.classes
        )
        run.samples.put(kind, table)


def sample_size(request: FinetuneRequest) -> SampleSize:
    """Predictions of the base and of the tuned model on the test rows."""
    return SampleSize(2 * len(request.split.test))


def checkpoint_note(
    request: FinetuneRequest, done: FinetuneOutcome, address: str
) -> dict[str, Any]:
    """The origin of a checkpoint: run, base, task, data, and its test scores."""
    prompt = request.model.examples.format
    return {
        "finetune": address,
        "base": {"name": request.lm.name, "digest": request.lm.digest},
        "task": request.split.task.name,
        "data": request.split.training_data,
        "mode": request.model.mode,
        "template": prompt.template,
        "words": list(prompt.words),
        "trained": sorted(done.params),
        "test": {name: score.mean for name, score in done.scores["tuned"].items()},
    }


def summarise_finetuning(
    request: FinetuneRequest, done: FinetuneOutcome, address: str
) -> dict[str, Any]:
    """Best score, all test scores, what was trained on what, and the verdict."""
    spec, split, trained = request.spec, request.split, done.trained
    metric, examples = split.task.metric, request.model.examples
    best = done.scores["tuned"][metric]
    shown = {"value": best.mean, "low": best.low, "high": best.high}
    own = run_folder(spec.runs, "finetune", address) / OUTPUT.name
    return {
        "mode": request.model.mode,
        "task": split.task.name,
        "template": examples.format.template,
        "words": list(examples.format.words),
        "metric": metric,
        "best": {"model": request.lm.name, "data": split.texts.name, "metric": metric, **shown},
        "test": {k: {n: s.mean for n, s in scores.items()} for k, scores in done.scores.items()},
        "rows": {part: len(getattr(split, part)) for part in ("train", "dev", "test")},
        "best_step": trained.best_step,
        "best_dev": trained.best,
        "stopped": trained.stopped,
        "steps_per_second": round(trained.curve[-1]["step"] / max(trained.seconds, 1e-9), 2),
        "trained_weights": sum(p.numel() for p in done.params.values()),
        "cut_texts": examples.truncated,
        "checkpoint": str(Path(spec.out) if spec.out else own),
        "notes": list(split.texts.notes),
        "verdict": finetune_verdict(
            done.scores, done.blocks, metric, task=split.task.name, steps=trained.best_step,
            rows=len(split.train), shots=spec.shots,
        ),
    }  # fmt: skip


def estimate(request: FinetuneRequest) -> list[Estimate]:
    """The cost, extrapolated from a few steps that change nothing."""
    return [estimate_training(request.model, request.split, request.spec)]
