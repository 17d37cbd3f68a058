"""Fine-tuning a model on a task: its loss, its evaluation on dev, its weights restored."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from cutaway.console import Console
from cutaway.engine.process_group import process_group
from cutaway.training.batch_order import make_batch_order
from cutaway.training.gradients import frozen_others
from cutaway.training.l1_proximal import StepLoss, l1_distance, with_l1_proximal
from cutaway.training.loop import TrainingResult, train
from cutaway.training.options import TrainingSpec
from cutaway.training.plan import TrainingPlan
from cutaway.training.task_model import TaskModel
from cutaway.training.task_scores import metric_values
from cutaway.training.task_split import TaskSplit


def training_plan(spec: TrainingSpec) -> TrainingPlan:
    """The training plan in a spec."""
    names = ("steps", "lr", "optimizer", "schedule", "warmup", "weight_decay", "momentum",
             "every", "patience", "seed")  # fmt: skip
    return TrainingPlan(**{name: getattr(spec, name) for name in names}, clip=spec.clip or None)


def run_finetuning(
    task_model: TaskModel,
    split: TaskSplit,
    params: Mapping[str, nn.Parameter],
    spec: TrainingSpec,
    folder: Path,
    console: Console,
    *,
    identity: str,
    project: Callable[[], None] | None = None,
) -> TrainingResult:
    """Train; the model has the weights with the best dev score afterwards. A killed run resumes."""
    console.print(
        f"{len(split.train)} training rows, {len(split.dev)} dev rows, {len(split.test)} test "
        f"rows; {sum(p.numel() for p in params.values()):,} trainable weights."
    )
    loss: StepLoss = finetune_loss(task_model, split, params, spec)
    if spec.l1 and spec.l1_way == "threshold":
        loss, project = with_l1_proximal(loss, params, spec.l1, training_plan(spec), project)
    try:
        with frozen_others(task_model.module, params):
            return train(
                params,
                loss,
                training_plan(spec),
                folder=folder,
                identity={"run": identity},
                evaluate=lambda: dev_scores(task_model, split),
                score=f"dev_{split.task.metric}",
                project=project,
                console=console,
            )
    finally:
        # Dropout off again.
        task_model.module.eval()


def finetune_loss(
    task_model: TaskModel, split: TaskSplit, params: Mapping[str, nn.Parameter], spec: TrainingSpec
) -> Callable[[int], dict[str, Tensor]]:
    """step -> the parts of its loss, over a batch determined by seed and step."""
    rows = [task_model.examples.rows[i] for i in split.train]
    order = make_batch_order(rows, spec.batch, spec.seed)
    l1 = spec.l1 if spec.l1_way == "gradient" else 0.0
    start = {n: p.detach().clone() for n, p in params.items()} if l1 else {}
    group = process_group()

    def loss(step: int) -> dict[str, Tensor]:
        task_model.module.train(spec.dropout)
        batch = order(step)
        fit = task_model.losses(split.train[group.share(batch)]).mean() * group.weight(batch)
        if not l1:
            return {"loss": fit}
        distance = l1_distance(params, start)
        return {"loss": fit + l1 * distance, "fit": fit, "l1": distance}

    return loss


def dev_scores(task_model: TaskModel, split: TaskSplit) -> dict[str, float]:
    """Loss and metrics on the dev rows."""
    examples, proba = task_model.examples.take(split.dev), task_model.predict_proba(split.dev)
    log_proba = torch.from_numpy(proba).clamp_min(1e-12).log()
    loss = -(examples.targets.cpu().double() * log_proba).sum(dim=1).mean()
    values = metric_values(examples, proba, [examples.metric])
    return {"dev_loss": float(loss), **{f"dev_{name}": value for name, value in values.items()}}


@contextmanager
def restored(params: Mapping[str, nn.Parameter], *, when: bool) -> Iterator[None]:
    """Restore the weights afterwards, so that a model given as an object isn't changed."""
    before = {name: p.detach().clone() for name, p in params.items()} if when else {}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, value in before.items():
                params[name].copy_(value)
