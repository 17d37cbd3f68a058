"""Preconditioned L-BFGS for many independent smooth problems at once.

The problems share no unknowns, but one call of `evaluate` computes all that are still running, so
that their matrix products become one. Each has its own step length and stops when its gradient is
small. Nocedal and Wright (2006), algorithm 7.4, with the caller's preconditioner in place of the
scaled identity.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# The constant of the Armijo condition, and the maximum number of backtracking steps.
ARMIJO, MAX_BACKTRACKS = 1e-4, 12
# The search ends after this many steps without a decrease above rounding errors.
PATIENCE = 20


@dataclass(frozen=True, eq=False)
class ObjectiveValue:
    """Objective and gradient of problems at a point, and curvatures for the preconditioner."""

    objective: Float[Tensor, " p"]
    gradient: Float[Tensor, "p unknown"]
    curvature: Float[Tensor, "p cls"]

    def at(self, chosen: Tensor) -> "ObjectiveValue":
        """The values of the chosen problems."""
        return ObjectiveValue(self.objective[chosen], self.gradient[chosen], self.curvature[chosen])

    def put(self, index: Tensor, other: "ObjectiveValue", chosen: Tensor) -> None:
        """Overwrite the problems at `index` by the chosen ones of `other`."""
        self.objective[index] = other.objective[chosen]
        self.gradient[index] = other.gradient[chosen]
        self.curvature[index] = other.curvature[chosen]


Evaluate = Callable[[Tensor, Tensor], ObjectiveValue]
"""(points (p, unknown), indices of the problems (p,)) -> values."""
Precondition = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(gradients, curvatures, indices) -> approximate inverse Hessians times the gradients."""


@dataclass(frozen=True, eq=False)
class Minimum:
    """The result of each problem."""

    point: Float[Tensor, "p unknown"]
    objective: Float[Tensor, " p"]
    gradient: Float[Tensor, " p"]
    """The largest entry of the gradient there."""
    iterations: Int[Tensor, " p"]
    converged: Bool[Tensor, " p"]


@dataclass(eq=False)
class _StepHistory:
    """The last steps of each problem, and the changes of its gradient."""

    size: int
    steps: list[Tensor] = field(default_factory=list)
    changes: list[Tensor] = field(default_factory=list)
    inverse: list[Tensor] = field(default_factory=list)
    """1 / (step . change); 0 if the pair has no positive curvature."""

    def add(self, step: Tensor, change: Tensor) -> None:
        product = (step * change).sum(1)
        use = product > 1e-14 * change.square().sum(1)
        self.steps.append(step)
        self.changes.append(change)
        self.inverse.append(torch.where(use, 1.0 / product, torch.zeros_like(product)))
        for history in (self.steps, self.changes, self.inverse):
            del history[: -self.size]

    def keep(self, chosen: Tensor) -> None:
        self.steps = [a[chosen] for a in self.steps]
        self.changes = [a[chosen] for a in self.changes]
        self.inverse = [a[chosen] for a in self.inverse]

    def clear(self, chosen: Tensor) -> None:
        for scale in self.inverse:
            scale[chosen] = 0.0

    def direction(
        self, here: ObjectiveValue, running: Tensor, precondition: Precondition
    ) -> Tensor:
        """The search direction, by the two-loop recursion around the preconditioner."""
        q, past = here.gradient, []
        pairs = list(zip(self.steps, self.changes, self.inverse, strict=True))
        for step, change, scale in reversed(pairs):
            share = scale * (step * q).sum(1)
            past.append(share)
            q = torch.addcmul(q, share[:, None], change, value=-1.0)
        q = precondition(q, here.curvature, running)
        for (step, change, scale), share in zip(pairs, reversed(past), strict=True):
            q = torch.addcmul(q, (share - scale * (change * q).sum(1))[:, None], step)
        return -q


def minimise(
    evaluate: Evaluate,
    precondition: Precondition,
    start: Float[Tensor, "p unknown"],
    *,
    tol: float,
    max_iter: int,
    memory: int = 10,
    gap: float | None = None,
) -> Minimum:
    """Minimise each problem until all entries of its gradient are at most `tol`.

    With `gap`, the decrease that a Newton step predicts must also be at most this share of the
    objective: for separable classes the gradient is small long before the minimum. A problem also
    stops after `max_iter` iterations, or when rounding errors prevent a decrease; `converged` is
    whether its gradient was small by then.
    """
    running = torch.arange(len(start), device=start.device)
    point, here = start.clone(), evaluate(start, running)
    past, found = _StepHistory(memory), _empty_result(start)
    stuck, idle = torch.zeros(2, len(start), dtype=torch.long, device=start.device)
    for step in range(max_iter + 1):
        small = here.gradient.abs().amax(1) <= tol
        if gap is not None and bool(small.any()):
            small[small.clone()] = _newton_gain_is_small(
                here.at(small), running[small], precondition, gap
            )
        # A failed line search clears the history; two in a row end the search.
        stop = small | (stuck > 1) | (idle > PATIENCE) | (step == max_iter)
        if bool(stop.any()):
            _store_result(found, running[stop], point[stop], here.at(stop), step, tol)
            go = ~stop
            running, point, here = running[go], point[go], here.at(go)
            stuck, idle = stuck[go], idle[go]
            past.keep(go)
        if len(running) == 0:
            break
        way = past.direction(here, running, precondition)
        next_point, next_here, moved = _line_search(evaluate, point, here, way, running)
        past.add(next_point - point, next_here.gradient - here.gradient)
        stuck = torch.where(moved, 0, stuck + 1)
        fell = next_here.objective < here.objective - _rounding_error(here)
        idle = torch.where(fell, 0, idle + 1)
        past.clear(~moved)
        point, here = next_point, next_here
    return found


def _newton_gain_is_small(
    here: ObjectiveValue, running: Tensor, precondition: Precondition, gap: float
) -> Tensor:
    """Whether a Newton step predicts a decrease of at most a share `gap` of the objective."""
    step = precondition(here.gradient, here.curvature, running)
    return 0.5 * (step * here.gradient).sum(1) <= gap * here.objective


def _empty_result(start: Tensor) -> Minimum:
    long = torch.zeros(len(start), dtype=torch.long, device=start.device)
    real = torch.zeros(len(start), dtype=start.dtype, device=start.device)
    return Minimum(torch.zeros_like(start), real.double(), real.clone(), long, long.bool())


def _store_result(
    found: Minimum, places: Tensor, point: Tensor, here: ObjectiveValue, step: int, tol: float
) -> None:
    norm = here.gradient.abs().amax(1)
    found.point[places] = point
    found.objective[places] = here.objective.double()
    found.gradient[places] = norm
    found.iterations[places] = step
    found.converged[places] = norm <= tol


def _rounding_error(here: ObjectiveValue) -> Tensor:
    """The rounding error of the objective."""
    return 8 * torch.finfo(here.gradient.dtype).eps * here.objective.abs()


def _line_search(
    evaluate: Evaluate, point: Tensor, here: ObjectiveValue, way: Tensor, running: Tensor
) -> tuple[Tensor, ObjectiveValue, Tensor]:
    """Backtracking line search: the next points, their values, and whether a step was found."""
    slope = (way * here.gradient).sum(1)
    noise = _rounding_error(here)
    length = torch.ones_like(slope)
    todo = torch.arange(len(point), device=point.device)
    reached, value = point.clone(), here.at(todo)
    for _ in range(MAX_BACKTRACKS):
        tried = point[todo] + length[todo, None] * way[todo]
        there = evaluate(tried, running[todo])
        gain = there.objective - here.objective[todo]
        aim = length[todo] * slope[todo]
        good = gain <= ARMIJO * aim + noise[todo]
        reached[todo[good]] = tried[good]
        value.put(todo[good], there, good)
        # The minimum of the interpolating parabola; NaN (overflow) counts as a step far too long.
        shorter = torch.nan_to_num(-aim / (2 * (gain - aim)), nan=0.1).clamp(0.1, 0.5)
        length[todo] = length[todo] * shorter.to(length.dtype)
        todo = todo[~good]
        if len(todo) == 0:
            break
    moved = torch.ones(len(point), dtype=torch.bool, device=point.device)
    moved[todo] = False
    return reached, value, moved
