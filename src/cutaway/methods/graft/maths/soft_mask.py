"""Learning which weights to keep: a soft mask, gradient steps on it, an exact mask from it.

The paper writes gamma = gamma_base + (1 - 2 gamma_base) sigmoid(S - 10) with gamma_base the
starting mask in 0/1 and S starting in [0, 1). That is gamma = sigmoid(z) with the logit
z = S - 10 off the starting mask and z = 10 - S on it; a gradient step on S is the same step on z.
So z is all that is kept, the order of z is the order of gamma without its rounding, and the mask
of exact size is the top of z.

The model's own parameters hold theta(gamma) = base + gamma (tuned - base), written in place. Its
gradient arrives tensor by tensor during the backward pass, moves z at once and is freed: besides
the model there are base, tuned and z, and one tensor's gradient. A step in several pieces adds
their gradients up first, but for mirror descent with a budget: it is linear in the gradient and
theta stays until the step ends, so there each piece moves z at once too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from cutaway.core.errors import BadSpec
from cutaway.core.params import check_same_parameters
from cutaway.methods.graft.maths.patch import values_at, write_values
from cutaway.methods.graft.maths.recompute import recompute_cheap_ops
from cutaway.methods.graft.maths.select import Mask, Params, score_threshold, scores_from, top_mask

LiveParams = Mapping[str, nn.Parameter]
Loss = Callable[[], Tensor]
# Weights moved together: several passes over so many stay in the processor's cache.
CHUNK_SIZE = 1 << 17
START_LOGIT = 10.0
BETAS, ADAM_EPS = (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class MaskPlan:
    """How the mask is learned."""

    steps: int = 100
    lr: float = 1e7
    optimizer: Literal["sgd", "adam", "mirror"] = "sgd"
    """sgd: the paper's plain steps on S; adam: Adam on S; mirror: plain steps on the logit along
    dL/dgamma, which is mirror descent on gamma, so that no weight is catapulted past others
    while it crosses the middle, and the order of the logits stays that of what they are worth."""
    every: int = 5
    """Round and judge after so many steps."""
    budget: bool = False
    """Hold the soft mask to its size: after each step all logits are shifted alike, so that
    exactly as many as are to be kept lie above 0. For mirror descent this is the projection
    onto masks of that size."""

    def __post_init__(self) -> None:
        """BadSpec for a value that can't be."""
        if self.steps < 0 or self.every < 1 or not self.lr > 0:
            raise BadSpec(
                "A plan needs steps of at least 0, every of at least 1 and lr above 0, got "
                f"{self.steps!r}, {self.every!r}, {self.lr!r}."
            )


@dataclass(frozen=True, eq=False)
class LearnedMask:
    """The best mask met on the way, what it scored, and the way."""

    mask: Mask
    score: float
    step: int
    """After which step; 0 is the starting mask."""
    curve: tuple[dict[str, int | float], ...]
    logits: Params = field(repr=False)
    """z after the last step: the order in which weights would be kept."""


class SoftMask:
    """A soft mask over the trained weights, and the parameters that live under it."""

    def __init__(
        self, params: LiveParams, base: Params, tuned: Params, start: Mask, *, rng: torch.Generator
    ) -> None:
        check_same_parameters(base, tuned=tuned, params=params)
        self.params, self.base, self.tuned = params, base, tuned
        self.logits = initial_logits(base, start, rng=rng)
        self._moments: dict[str, tuple[Tensor, Tensor]] = {}
        self.steps = 0

    @torch.no_grad()
    def write(self, keep: int | None = None) -> None:
        """theta(gamma) into the parameters; with `keep`, so many logits lie above 0 then."""
        shift = (
            0.0
            if keep is None
            else score_threshold(list(self.logits), scores_from(self.logits), keep)
        )
        for name, param in self.params.items():
            scratch = _scratch_buffers(param)
            for piece in self._pieces(name, param.data):
                if shift:
                    piece.logits.sub_(shift)
                _write_theta(piece, scratch)

    def step(self, losses: Sequence[Loss], plan: MaskPlan) -> float:
        """One step down the sum of the losses; that sum.

        The parameters hold the new theta, unless the plan has a budget: then `write` it.
        """
        self.steps += 1
        total = 0.0
        at_once = plan.optimizer == "mirror" and plan.budget
        with self._listening(plan) as ending:
            for number, loss in enumerate(losses, start=1):
                ending[0] = at_once or number == len(losses)
                with recompute_cheap_ops():
                    value = loss()
                value.backward()
                total += float(value.detach())
        return total

    def hard(self, keep: int) -> Mask:
        """The top of the soft mask: exactly `keep` places."""
        return top_mask(list(self.logits), scores_from(self.logits), keep)

    def ones(self) -> int:
        """How many weights a cut at gamma = 0.5 would keep, as the reference rounds."""
        return sum(int((logits > 0).sum()) for logits in self.logits.values())

    @contextmanager
    def _listening(self, plan: MaskPlan) -> Iterator[list[bool]]:
        """While `ending`, a backward pass moves each tensor's logits as its gradient comes."""
        ending = [False]

        def moved(name: str) -> Callable[[Tensor], None]:
            def hook(param: Tensor) -> None:
                if ending[0] and param.grad is not None:
                    self._move(name, param, param.grad, plan)
                    param.grad = None

            return hook

        hooks = [
            param.register_post_accumulate_grad_hook(moved(name))
            for name, param in self.params.items()
        ]
        try:
            yield ending
        finally:
            for hook in hooks:
                hook.remove()

    @torch.no_grad()
    def _move(self, name: str, param: Tensor, grad: Tensor, plan: MaskPlan) -> None:
        scratch = _scratch_buffers(param)
        flat = grad.contiguous().view(-1)
        moments = self._moments_of(name) if plan.optimizer == "adam" else None
        for piece in self._pieces(name, param.data):
            slope, gradient = (
                STEP_DERIVATIVES[plan.optimizer](piece, scratch),
                flat[piece.at].float(),
            )
            if moments is None:
                piece.logits.addcmul_(slope, gradient, value=-plan.lr)
            else:
                change = _adam_update(slope.mul_(gradient), moments, piece.at, self.steps)
                piece.logits.sub_(change, alpha=plan.lr)
            if not plan.budget:
                _write_theta(piece, scratch)

    def _moments_of(self, name: str) -> tuple[Tensor, Tensor]:
        if name not in self._moments:
            zero = torch.zeros_like(self.logits[name])
            self._moments[name] = (zero, zero.clone())
        return self._moments[name]

    def _pieces(self, name: str, theta: Tensor) -> Iterator["_WeightChunk"]:
        base, tuned = self.base[name].reshape(-1), self.tuned[name].reshape(-1)
        flat, logits = theta.view(-1), self.logits[name]
        for start in range(0, len(flat), CHUNK_SIZE):
            at = slice(start, start + CHUNK_SIZE)
            yield _WeightChunk(at, base[at], tuned[at], logits[at], flat[at])


@dataclass(frozen=True, eq=False)
class _WeightChunk:
    """Views on a stretch of one tensor."""

    at: slice
    base: Tensor
    tuned: Tensor
    logits: Tensor
    theta: Tensor


def initial_logits(base: Params, start: Mask, *, rng: torch.Generator) -> dict[str, Tensor]:
    """z before the first step: 10 - S on the starting mask, S - 10 off it, S random in [0, 1)."""
    found = {}
    for name, value in base.items():
        drawn = torch.rand(value.numel(), generator=rng).sub_(START_LOGIT)
        if name in start.places:
            places = start.places[name]
            drawn[places] = -drawn[places]
        found[name] = drawn.to(value.device)
    return found


def dtheta_dlogit(piece: "_WeightChunk", scratch: tuple[Tensor, Tensor]) -> Tensor:
    """dtheta/dz = (tuned - base) gamma (1 - gamma)."""
    size = len(piece.logits)
    gamma, slope = scratch[0][:size], scratch[1][:size]
    torch.sigmoid(piece.logits, out=gamma)
    torch.mul(gamma, gamma, out=slope)
    torch.sub(gamma, slope, out=slope)
    return slope.mul_(dtheta_dgamma(piece, scratch))


def dtheta_dgamma(piece: "_WeightChunk", scratch: tuple[Tensor, Tensor]) -> Tensor:
    """dtheta/dgamma = tuned - base."""
    delta = scratch[0][: len(piece.logits)]
    return torch.sub(piece.tuned.float(), piece.base.float(), out=delta)


# Along which the gradient at theta moves a logit.
STEP_DERIVATIVES = {"sgd": dtheta_dlogit, "adam": dtheta_dlogit, "mirror": dtheta_dgamma}


def _write_theta(piece: "_WeightChunk", scratch: tuple[Tensor, Tensor]) -> None:
    # lerp gives exactly the base at 0 and exactly the tuned value at 1.
    gamma = torch.sigmoid(piece.logits, out=scratch[0][: len(piece.logits)])
    if piece.theta.dtype == torch.float32:
        torch.lerp(piece.base, piece.tuned, gamma, out=piece.theta)
    else:
        piece.theta.copy_(torch.lerp(piece.base.float(), piece.tuned.float(), gamma))


def _scratch_buffers(param: Tensor) -> tuple[Tensor, Tensor]:
    size = min(CHUNK_SIZE, param.numel())
    made = torch.empty(2, size, dtype=torch.float32, device=param.device)
    return made[0], made[1]


def _adam_update(change: Tensor, moments: tuple[Tensor, Tensor], at: slice, step: int) -> Tensor:
    """Adam's direction: the mean of the gradients over the root of their mean square."""
    (first, second), (fast, slow) = (m[at] for m in moments), BETAS
    first.lerp_(change, 1 - fast)
    second.mul_(slow).addcmul_(change, change, value=1 - slow)
    root = (second / (1 - slow**step)).sqrt_().add_(ADAM_EPS)
    return first / (1 - fast**step) / root


def learn_mask(
    params: LiveParams,
    base: Params,
    tuned: Params,
    start: Mask,
    losses: Callable[[int], Sequence[Loss]],
    judge: Callable[[], float],
    plan: MaskPlan,
    *,
    rng: torch.Generator,
    told: Callable[[int, float], None] = lambda step, loss: None,
) -> LearnedMask:
    """The best mask of the starting mask's exact size that the steps lead by.

    `losses(step)` are the pieces of that step's loss, `judge()` the score (higher is better) of
    what the parameters hold then. The parameters hold the base again afterwards.
    """
    soft = SoftMask(params, base, tuned, start, rng=rng)
    best: tuple[float, Mask, int] = (-float("inf"), start, 0)
    curve: list[dict[str, int | float]] = []
    with gradients_enabled(params, base):
        for step in range(plan.steps + 1):
            loss = soft.step(losses(step), plan) if step else float("nan")
            judging = step % plan.every == 0 or step == plan.steps
            if judging:
                mask = soft.hard(start.size) if step else start
                score = score_mask(params, base, tuned, mask, judge)
                best = max(best, (score, mask, step), key=lambda found: found[0])
                curve.append({"step": step, "loss": loss, "score": score, "ones": soft.ones()})
            if judging or plan.budget:
                soft.write(start.size if plan.budget else None)
            told(step, loss)
    score, mask, step = best
    return LearnedMask(mask, score, step, tuple(curve), soft.logits)


def score_mask(
    params: LiveParams, base: Params, tuned: Params, mask: Mask, judge: Callable[[], float]
) -> float:
    """What `judge` says while the parameters hold the base with the mask's weights tuned."""
    assign_weights(params, base)
    write_values(params, mask, values_at(tuned, mask))
    return judge()


@torch.no_grad()
def assign_weights(params: Params, base: Params) -> None:
    """The base's values into the parameters."""
    for name, value in base.items():
        params[name].data.copy_(value)


@contextmanager
def gradients_enabled(params: LiveParams, base: Params) -> Iterator[None]:
    """Gradients on; afterwards off as before, no gradient left, and the base's values in place."""
    flags = {name: param.requires_grad for name, param in params.items()}
    try:
        for param in params.values():
            param.data = param.data.contiguous()
            param.requires_grad_(True)
        yield
    finally:
        for name, param in params.items():
            param.requires_grad_(flags[name])
            param.grad = None
        assign_weights(params, base)
