"""Training that leaves most weights exactly where they were: an l1 penalty taken as a threshold."""

from collections.abc import Callable, Mapping

from torch import Tensor, nn

from cutaway.core.errors import BadSpec
from cutaway.training.plan import SCHEDULES, TrainingPlan
from cutaway.training.soft_threshold import l1_proximal_step

StepLoss = Callable[[int], Mapping[str, Tensor]]
AfterStep = Callable[[], None]


def with_l1_proximal(
    loss: StepLoss,
    params: Mapping[str, nn.Parameter],
    l1: float,
    plan: TrainingPlan,
    after: AfterStep | None = None,
) -> tuple[StepLoss, AfterStep]:
    """The loss as it is, and what follows each of its steps: all weights drawn back by lr x l1.

    Training may be taken up in the middle, so the step is the one the loss was last asked for.
    """
    if plan.optimizer != "sgd":
        raise BadSpec(
            f"l1_way 'threshold' is for --optimizer sgd, got {plan.optimizer!r}: adamw has no one "
            "learning rate to draw weights back by. Use --l1-way gradient."
        )
    start = {name: value.detach().clone() for name, value in params.items()}
    now = [0]

    def at(step: int) -> Mapping[str, Tensor]:
        now[0] = step
        return loss(step)

    def project() -> None:
        l1_proximal_step(params, start, l1 * plan.lr * SCHEDULES[plan.schedule](now[0], plan))
        if after is not None:
            after()

    return at, project
