"""Training that leaves most weights exactly where they were: an l1 penalty taken as a threshold."""

from collections.abc import Callable, Mapping

from torch import Tensor, nn

from cutaway.core.errors import BadSpec
from cutaway.methods.finetune import draw_back
from cutaway.run.plan import SCHEDULES, Plan

Loss = Callable[[int], Mapping[str, Tensor]]
Project = Callable[[], None]


def thresholded(
    loss: Loss,
    params: Mapping[str, nn.Parameter],
    l1: float,
    plan: Plan,
    after: Project | None = None,
) -> tuple[Loss, Project]:
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
        draw_back(params, start, l1 * plan.lr * SCHEDULES[plan.schedule](now[0], plan))
        if after is not None:
            after()

    return at, project
