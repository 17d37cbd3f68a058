"""Teaching a pupil: which weights learn, from which batches, looked at how often."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from cutaway.console import Console
from cutaway.engine.process_group import process_group
from cutaway.training.batch_order import make_batch_order
from cutaway.training.l1_proximal import StepLoss, with_l1_proximal
from cutaway.training.loop import TrainingResult, frozen_others, train
from cutaway.training.options import TrainingSpec
from cutaway.training.plan import TrainingPlan
from cutaway.training.soft_threshold import l1_distance
from cutaway.training.task_model import TaskModel
from cutaway.training.task_scores import metric_values
from cutaway.training.task_split import TaskSplit
from cutaway.training.trainable_params import select_trainable_params


def trainable_params(pupil: TaskModel, spec: TrainingSpec) -> dict[str, nn.Parameter]:
    """The weights the spec lets learn."""
    return select_trainable_params(
        pupil,
        fixed_embeddings=spec.fixed_embeddings,
        fixed_head=spec.fixed_head,
        biases_only=spec.biases_only,
        patterns=spec.params,
    )


def training_plan(spec: TrainingSpec) -> TrainingPlan:
    """The training plan in a spec."""
    names = ("steps", "lr", "optimizer", "schedule", "warmup", "weight_decay", "momentum",
             "every", "patience", "seed")  # fmt: skip
    return TrainingPlan(**{name: getattr(spec, name) for name in names}, clip=spec.clip or None)


def run_finetuning(
    pupil: TaskModel,
    lesson: TaskSplit,
    params: Mapping[str, nn.Parameter],
    spec: TrainingSpec,
    folder: Path,
    console: Console,
    *,
    identity: str,
    project: Callable[[], None] | None = None,
) -> TrainingResult:
    """The weights are the best on dev afterwards; a killed run is taken up where it was."""
    console.print(
        f"{len(lesson.train)} rows to learn from, {len(lesson.dev)} to tune on, "
        f"{len(lesson.test)} to test on; {sum(p.numel() for p in params.values()):,} weights learn."
    )
    loss: StepLoss = finetune_loss(pupil, lesson, params, spec)
    if spec.l1 and spec.l1_way == "threshold":
        loss, project = with_l1_proximal(loss, params, spec.l1, training_plan(spec), project)
    try:
        with frozen_others(pupil.module, params):
            return train(
                params,
                loss,
                training_plan(spec),
                folder=folder,
                identity={"run": identity},
                evaluate=lambda: dev_scores(pupil, lesson),
                score=f"dev_{lesson.task.metric}",
                project=project,
                console=console,
            )
    finally:
        # What follows measures or learns something else: never with dropout.
        pupil.module.eval()


def finetune_loss(
    pupil: TaskModel, lesson: TaskSplit, params: Mapping[str, nn.Parameter], spec: TrainingSpec
) -> Callable[[int], dict[str, Tensor]]:
    """step -> the parts of its loss, over a batch that seed and step decide."""
    order = make_batch_order([pupil.examples.rows[i] for i in lesson.train], spec.batch, spec.seed)
    in_loss = spec.l1 if spec.l1_way == "gradient" else 0.0
    start = {n: p.detach().clone() for n, p in params.items()} if in_loss else {}

    together = process_group()

    def loss(step: int) -> dict[str, Tensor]:
        pupil.module.train(spec.dropout)
        rows = order(step)
        fit = pupil.losses(lesson.train[together.share(rows)]).mean() * together.weight(rows)
        if not in_loss:
            return {"loss": fit}
        pull = l1_distance(params, start)
        return {"loss": fit + in_loss * pull, "fit": fit, "l1": pull}

    return loss


def dev_scores(pupil: TaskModel, lesson: TaskSplit) -> dict[str, float]:
    """Loss and metrics on the dev rows."""
    asked, said = pupil.examples.take(lesson.dev), pupil.predict_proba(lesson.dev)
    likely = torch.from_numpy(said).clamp_min(1e-12).log()
    loss = -(asked.targets.cpu().double() * likely).sum(dim=1).mean()
    values = metric_values(asked, said, [asked.metric])
    return {"dev_loss": float(loss), **{f"dev_{name}": value for name, value in values.items()}}


@contextmanager
def restored(params: Mapping[str, nn.Parameter], *, when: bool) -> Iterator[None]:
    """The weights are afterwards what they were: a model given as an object stays the user's."""
    kept = {name: p.detach().clone() for name, p in params.items()} if when else {}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, value in kept.items():
                params[name].copy_(value)
