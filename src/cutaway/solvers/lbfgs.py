"""Many small smooth problems minimised side by side, by preconditioned L-BFGS.

The problems share no unknowns, only the cost of being looked at: one call of `value` evaluates
all that are still running, so that their matrix products become one. Each has its own step
length, and leaves as soon as its gradient is small. Nocedal and Wright (2006), algorithm 7.4,
with the caller's preconditioner in place of the scaled identity.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Armijo's constant, and how often a step may be shortened.
ARMIJO, MAX_BACKTRACKS = 1e-4, 12
# So many steps in a row that lower the objective by no more than rounding end the search.
PATIENCE = 20


@dataclass(frozen=True, eq=False)
class ObjectiveValue:
    """The running problems at a point: objective, gradient, and what the preconditioner needs."""

    objective: Float[Tensor, " p"]
    gradient: Float[Tensor, "p unknown"]
    curvature: Float[Tensor, "p cls"]

    def at(self, chosen: Tensor) -> "ObjectiveValue":
        """The chosen problems only."""
        return ObjectiveValue(self.objective[chosen], self.gradient[chosen], self.curvature[chosen])

    def put(self, places: Tensor, other: "ObjectiveValue", chosen: Tensor) -> None:
        """Overwrites the problems at `places` by the chosen ones of `other`."""
        self.objective[places] = other.objective[chosen]
        self.gradient[places] = other.gradient[chosen]
        self.curvature[places] = other.curvature[chosen]


Evaluate = Callable[[Tensor, Tensor], ObjectiveValue]
"""(points (p, unknown), which problems (p,)) -> their values."""
Precondition = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(gradients, curvatures, which problems) -> the inverse Hessian's guess times the gradients."""


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where the search of each problem ended."""

    point: Float[Tensor, "p unknown"]
    objective: Float[Tensor, " p"]
    gradient: Float[Tensor, " p"]
    """The largest entry of the gradient there."""
    iterations: Int[Tensor, " p"]
    converged: Bool[Tensor, " p"]


@dataclass(eq=False)
class _StepHistory:
    """The last steps and the changes of gradient they made, problem by problem."""

    most: int
    steps: list[Tensor] = field(default_factory=list)
    turns: list[Tensor] = field(default_factory=list)
    inverse: list[Tensor] = field(default_factory=list)
    """1 / (step . turn), 0 where that pair is of no use."""

    def add(self, step: Tensor, turn: Tensor) -> None:
        product = (step * turn).sum(1)
        use = product > 1e-14 * turn.square().sum(1)
        self.steps.append(step)
        self.turns.append(turn)
        self.inverse.append(torch.where(use, 1.0 / product, torch.zeros_like(product)))
        for kept in (self.steps, self.turns, self.inverse):
            del kept[: -self.most]

    def keep(self, chosen: Tensor) -> None:
        self.steps = [a[chosen] for a in self.steps]
        self.turns = [a[chosen] for a in self.turns]
        self.inverse = [a[chosen] for a in self.inverse]

    def forget(self, chosen: Tensor) -> None:
        for scale in self.inverse:
            scale[chosen] = 0.0

    def direction(
        self, here: ObjectiveValue, running: Tensor, precondition: Precondition
    ) -> Tensor:
        """The two loops, around the preconditioner."""
        q, past = here.gradient, []
        pairs = list(zip(self.steps, self.turns, self.inverse, strict=True))
        for step, turn, scale in reversed(pairs):
            share = scale * (step * q).sum(1)
            past.append(share)
            q = torch.addcmul(q, share[:, None], turn, value=-1.0)
        q = precondition(q, here.curvature, running)
        for (step, turn, scale), share in zip(pairs, reversed(past), strict=True):
            q = torch.addcmul(q, (share - scale * (turn * q).sum(1))[:, None], step)
        return -q


def minimise(
    evaluate: Evaluate,
    precondition: Precondition,
    start: Float[Tensor, "p unknown"],
    *,
    tol: float,
    most: int,
    memory: int = 10,
    gap: float | None = None,
) -> Minimum:
    """The minimum of each problem: every gradient entry at most `tol`, or `most` iterations.

    With `gap`, what a Newton step could still win must be at most that share of the objective
    too: where the rows can be told apart, a gradient is small long before the minimum.
    A problem whose objective no step can lower any more, rounding being what it is, stops there;
    `converged` says whether its gradient was small by then.
    """
    running = torch.arange(len(start), device=start.device)
    point, here = start.clone(), evaluate(start, running)
    past, found = _StepHistory(memory), _empty_result(start)
    stuck, idle = torch.zeros(2, len(start), dtype=torch.long, device=start.device)
    for step in range(most + 1):
        small = here.gradient.abs().amax(1) <= tol
        if gap is not None and bool(small.any()):
            small[small.clone()] = _newton_gain_is_small(
                here.at(small), running[small], precondition, gap
            )
        # Failing once costs the memory, failing twice in a row ends the search.
        stop = small | (stuck > 1) | (idle > PATIENCE) | (step == most)
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
        past.forget(~moved)
        point, here = next_point, next_here
    return found


def _newton_gain_is_small(
    here: ObjectiveValue, running: Tensor, precondition: Precondition, gap: float
) -> Tensor:
    """Whether a Newton step would win no more than a share `gap` of the objective."""
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
    """How much of the objective is rounding."""
    return 8 * torch.finfo(here.gradient.dtype).eps * here.objective.abs()


def _line_search(
    evaluate: Evaluate, point: Tensor, here: ObjectiveValue, way: Tensor, running: Tensor
) -> tuple[Tensor, ObjectiveValue, Tensor]:
    """The point a good step further for each problem, its value, and whether one was found."""
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
        # The parabola through what is known; a NaN (overflow) counts as far too long.
        shorter = torch.nan_to_num(-aim / (2 * (gain - aim)), nan=0.1).clamp(0.1, 0.5)
        length[todo] = length[todo] * shorter.to(length.dtype)
        todo = todo[~good]
        if len(todo) == 0:
            break
    moved = torch.ones(len(point), dtype=torch.bool, device=point.device)
    moved[todo] = False
    return reached, value, moved
