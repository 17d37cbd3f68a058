"""Teaching a pupil: which weights learn, from which batches, looked at how often."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from cutaway.methods.finetune import l1_distance
from cutaway.run.chosen import chosen
from cutaway.run.finetune_rows import values_of
from cutaway.run.lesson import Lesson
from cutaway.run.order import order_of
from cutaway.run.plan import Plan
from cutaway.run.pupil import Pupil
from cutaway.run.screen import Screen
from cutaway.run.specs.finetune import Training
from cutaway.run.team import team
from cutaway.run.threshold import Loss, thresholded
from cutaway.run.training import Trained, others_at_rest, train


def trained_params(pupil: Pupil, spec: Training) -> dict[str, nn.Parameter]:
    """The weights the spec lets learn."""
    return chosen(
        pupil,
        fixed_embeddings=spec.fixed_embeddings,
        fixed_head=spec.fixed_head,
        biases_only=spec.biases_only,
        patterns=spec.params,
    )


def plan_of(spec: Training) -> Plan:
    """The training plan in a spec."""
    names = ("steps", "lr", "optimizer", "schedule", "warmup", "weight_decay", "momentum",
             "every", "patience", "seed")  # fmt: skip
    return Plan(**{name: getattr(spec, name) for name in names}, clip=spec.clip or None)


def teach(
    pupil: Pupil,
    lesson: Lesson,
    params: Mapping[str, nn.Parameter],
    spec: Training,
    folder: Path,
    screen: Screen,
    *,
    identity: str,
    project: Callable[[], None] | None = None,
) -> Trained:
    """The weights are the best on dev afterwards; a killed run is taken up where it was."""
    screen.say(
        f"{len(lesson.train)} rows to learn from, {len(lesson.dev)} to tune on, "
        f"{len(lesson.test)} to test on; {sum(p.numel() for p in params.values()):,} weights learn."
    )
    loss: Loss = loss_of(pupil, lesson, params, spec)
    if spec.l1 and spec.l1_way == "threshold":
        loss, project = thresholded(loss, params, spec.l1, plan_of(spec), project)
    try:
        with others_at_rest(pupil.module, params):
            return train(
                params,
                loss,
                plan_of(spec),
                folder=folder,
                identity={"run": identity},
                evaluate=lambda: dev_scores(pupil, lesson),
                score=f"dev_{lesson.task.metric}",
                project=project,
                screen=screen,
            )
    finally:
        # What follows measures or learns something else: never with dropout.
        pupil.module.eval()


def loss_of(
    pupil: Pupil, lesson: Lesson, params: Mapping[str, nn.Parameter], spec: Training
) -> Callable[[int], dict[str, Tensor]]:
    """step -> the parts of its loss, over a batch that seed and step decide."""
    order = order_of([pupil.asked.rows[i] for i in lesson.train], spec.batch, spec.seed)
    in_loss = spec.l1 if spec.l1_way == "gradient" else 0.0
    start = {n: p.detach().clone() for n, p in params.items()} if in_loss else {}

    together = team()

    def loss(step: int) -> dict[str, Tensor]:
        pupil.module.train(spec.dropout)
        rows = order(step)
        fit = pupil.losses(lesson.train[together.share(rows)]).mean() * together.weight(rows)
        if not in_loss:
            return {"loss": fit}
        pull = l1_distance(params, start)
        return {"loss": fit + in_loss * pull, "fit": fit, "l1": pull}

    return loss


def dev_scores(pupil: Pupil, lesson: Lesson) -> dict[str, float]:
    """Loss and metrics on the dev rows."""
    asked, said = pupil.asked.take(lesson.dev), pupil.answers(lesson.dev)
    likely = torch.from_numpy(said).clamp_min(1e-12).log()
    loss = -(asked.targets.cpu().double() * likely).sum(dim=1).mean()
    values = values_of(asked, said, [asked.metric])
    return {"dev_loss": float(loss), **{f"dev_{name}": value for name, value in values.items()}}


@contextmanager
def given_back(params: Mapping[str, nn.Parameter], *, when: bool) -> Iterator[None]:
    """The weights are afterwards what they were: a model given as an object stays the user's."""
    kept = {name: p.detach().clone() for name, p in params.items()} if when else {}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, value in kept.items():
                params[name].copy_(value)
