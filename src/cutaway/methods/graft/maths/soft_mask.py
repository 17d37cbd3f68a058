"""Learn which weights to keep: gradient steps on a soft mask, rounded to an exact size.

The paper writes gamma = gamma_base + (1 - 2 gamma_base) sigmoid(S - 10) with gamma_base the
starting mask in 0/1 and S starting in [0, 1). That is gamma = sigmoid(z) with the logit
z = S - 10 off the starting mask and z = 10 - S on it; a gradient step on S is the same step on z.
So only z is stored; z has the order of gamma without its rounding error, and the mask of exact
size is the top of z.

The model's own parameters are theta(gamma) = base + gamma (tuned - base), written in place. Their
gradient arrives tensor by tensor during the backward pass, updates z at once and is freed: memory
is the model, base, tuned, z and one tensor's gradient. If a step's loss has several terms, their
gradients are summed first, except for mirror descent with a budget: it is linear in the gradient
and theta stays constant during the step, so each term updates z at once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from cutaway.core.errors import BadSpec
from cutaway.core.params import check_same_parameters
from cutaway.methods.graft.maths.select import Mask, Params, score_threshold, top_mask

LiveParams = Mapping[str, nn.Parameter]
Loss = Callable[[], Tensor]
# Weights updated together: small enough to stay in the processor's cache over several passes.
CHUNK_SIZE = 1 << 17
START_LOGIT = 10.0
BETAS, ADAM_EPS = (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class MaskPlan:
    """The optimizer of the mask and its schedule."""

    steps: int = 100
    lr: float = 1e7
    optimizer: Literal["sgd", "adam", "mirror"] = "sgd"
    """sgd: the paper's plain steps on S; adam: Adam on S; mirror: plain steps on the logit along
    dL/dgamma, which is mirror descent on gamma: the step doesn't depend on how close gamma is to
    0 or 1, so the order of the logits stays that of the accumulated gradients."""
    every: int = 5
    """Steps between evaluations of the rounded mask."""
    budget: bool = False
    """Project the soft mask to its size: after each step all logits are shifted by the same amount,
    so that exactly as many as are to be kept are above 0."""

    def __post_init__(self) -> None:
        """BadSpec for a value out of range."""
        if self.steps < 0 or self.every < 1 or not self.lr > 0:
            raise BadSpec(
                "A plan needs steps of at least 0, every of at least 1 and lr above 0, got "
                f"{self.steps!r}, {self.every!r}, {self.lr!r}."
            )


@dataclass(frozen=True, eq=False)
class MaskState:
    """What learning needs to go on after a step."""

    step: int
    logits: Params
    moments: Mapping[str, tuple[Tensor, Tensor]]
    """Adam's two means by tensor."""
    best: tuple[float, Mask, int]
    """The best score so far, its mask and its step."""
    curve: Sequence[Mapping[str, int | float]]


class SoftMask:
    """A soft mask over the tuned weights, and the live parameters that it interpolates."""

    def __init__(
        self, params: LiveParams, base: Params, tuned: Params, start: Mask, *, rng: torch.Generator
    ) -> None:
        check_same_parameters(base, tuned=tuned, params=params)
        self.params, self.base, self.tuned = params, base, tuned
        self.logits = initial_logits(base, start, rng=rng)
        self._unmoved = unmoved_weights(base, tuned)
        self.moments: dict[str, tuple[Tensor, Tensor]] = {}
        """Adam's two means by tensor."""
        self.steps = 0

    def resume(self, state: MaskState) -> None:
        """Go on from a state: its logits, their optimizer, and theta of them."""
        self.steps = state.step
        self.logits, self.moments = (
            {name: value.to(self.base[name].device) for name, value in state.logits.items()},
            {n: (a.to(self.base[n].device), b.to(self.base[n].device))
             for n, (a, b) in state.moments.items()},
        )  # fmt: skip
        self.write()

    @torch.no_grad()
    def write(self, keep: int | None = None) -> None:
        """Write theta(gamma) into the parameters; with `keep`, shift z so that as many are > 0."""
        shift = 0.0 if keep is None else score_threshold(list(self.logits), self._score, keep)
        for name, param in self.params.items():
            scratch = _scratch_buffers(param)
            for chunk in self._chunks(name, param.data):
                if shift:
                    chunk.logits.sub_(shift)
                _write_theta(chunk, scratch)

    def step(self, losses: Sequence[Loss], plan: MaskPlan) -> float:
        """One gradient step on the sum of the losses; returns that sum.

        The parameters are the new theta, unless the plan has a budget: then call `write`.
        """
        self.steps += 1
        total = 0.0
        at_once = plan.optimizer == "mirror" and plan.budget
        with self._update_hooks(plan) as enabled:
            for number, loss in enumerate(losses, start=1):
                enabled[0] = at_once or number == len(losses)
                value = loss()
                value.backward()
                total += float(value.detach())
        return total

    def rounded(self, keep: int) -> Mask:
        """The top of the soft mask: exactly `keep` weights."""
        return top_mask(list(self.logits), self._score, keep)

    def _score(self, name: str) -> Tensor:
        """The logits of one tensor; weights that are the same in both models come last."""
        logits, unmoved = self.logits[name], self._unmoved.get(name)
        return logits if unmoved is None else logits.masked_fill(unmoved, -float("inf"))

    def ones(self) -> int:
        """The number of weights with gamma above 0.5, as the reference rounds."""
        return sum(int((logits > 0).sum()) for logits in self.logits.values())

    @contextmanager
    def _update_hooks(self, plan: MaskPlan) -> Iterator[list[bool]]:
        """While enabled, a backward pass updates each tensor's logits and frees its gradient."""
        enabled = [False]

        def update(name: str) -> Callable[[Tensor], None]:
            def hook(param: Tensor) -> None:
                if enabled[0] and param.grad is not None:
                    self._update(name, param, param.grad, plan)
                    param.grad = None

            return hook

        hooks = [
            param.register_post_accumulate_grad_hook(update(name))
            for name, param in self.params.items()
        ]
        try:
            yield enabled
        finally:
            for hook in hooks:
                hook.remove()

    @torch.no_grad()
    def _update(self, name: str, param: Tensor, grad: Tensor, plan: MaskPlan) -> None:
        scratch = _scratch_buffers(param)
        flat = grad.contiguous().view(-1)
        moments = self._moments_of(name) if plan.optimizer == "adam" else None
        for chunk in self._chunks(name, param.data):
            slope, gradient = (
                STEP_DERIVATIVES[plan.optimizer](chunk, scratch),
                flat[chunk.at].float(),
            )
            if moments is None:
                chunk.logits.addcmul_(slope, gradient, value=-plan.lr)
            else:
                change = _adam_update(slope.mul_(gradient), moments, chunk.at, self.steps)
                chunk.logits.sub_(change, alpha=plan.lr)
            if not plan.budget:
                _write_theta(chunk, scratch)

    def _moments_of(self, name: str) -> tuple[Tensor, Tensor]:
        if name not in self.moments:
            zero = torch.zeros_like(self.logits[name])
            self.moments[name] = (zero, zero.clone())
        return self.moments[name]

    def _chunks(self, name: str, theta: Tensor) -> Iterator["_WeightChunk"]:
        base, tuned = self.base[name].reshape(-1), self.tuned[name].reshape(-1)
        flat, logits = theta.view(-1), self.logits[name]
        for start in range(0, len(flat), CHUNK_SIZE):
            at = slice(start, start + CHUNK_SIZE)
            yield _WeightChunk(at, base[at], tuned[at], logits[at], flat[at])


@dataclass(frozen=True, eq=False)
class _WeightChunk:
    """Views of a part of one tensor."""

    at: slice
    base: Tensor
    tuned: Tensor
    logits: Tensor
    theta: Tensor


def initial_logits(base: Params, start: Mask, *, rng: torch.Generator) -> dict[str, Tensor]:
    """z before the first step: 10 - S on the starting mask, S - 10 off it, S random in [0, 1)."""
    logits = {}
    for name, value in base.items():
        drawn = torch.rand(value.numel(), generator=rng).sub_(START_LOGIT)
        if name in start.indices:
            drawn[start.indices[name]] *= -1
        logits[name] = drawn.to(value.device)
    return logits


def unmoved_weights(base: Params, tuned: Params) -> dict[str, Tensor]:
    """For each tensor with such weights, which of them are the same in both models."""
    same = {name: (base[name] == tuned[name]).reshape(-1) for name in base}
    return {name: equal for name, equal in same.items() if bool(equal.any())}


def dtheta_dlogit(chunk: "_WeightChunk", scratch: tuple[Tensor, Tensor]) -> Tensor:
    """dtheta/dz = (tuned - base) gamma (1 - gamma)."""
    size = len(chunk.logits)
    gamma, slope = scratch[0][:size], scratch[1][:size]
    torch.sigmoid(chunk.logits, out=gamma)
    torch.mul(gamma, gamma, out=slope)
    torch.sub(gamma, slope, out=slope)
    return slope.mul_(dtheta_dgamma(chunk, scratch))


def dtheta_dgamma(chunk: "_WeightChunk", scratch: tuple[Tensor, Tensor]) -> Tensor:
    """dtheta/dgamma = tuned - base."""
    delta = scratch[0][: len(chunk.logits)]
    return torch.sub(chunk.tuned.float(), chunk.base.float(), out=delta)


# What the gradient at theta is multiplied with to step a logit.
STEP_DERIVATIVES = {"sgd": dtheta_dlogit, "adam": dtheta_dlogit, "mirror": dtheta_dgamma}


def _write_theta(chunk: "_WeightChunk", scratch: tuple[Tensor, Tensor]) -> None:
    # lerp gives exactly the base at 0 and exactly the tuned value at 1.
    gamma = torch.sigmoid(chunk.logits, out=scratch[0][: len(chunk.logits)])
    if chunk.theta.dtype == torch.float32:
        torch.lerp(chunk.base, chunk.tuned, gamma, out=chunk.theta)
    else:
        chunk.theta.copy_(torch.lerp(chunk.base.float(), chunk.tuned.float(), gamma))


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


@torch.no_grad()
def assign_weights(params: Params, values: Params) -> None:
    """Copy values into the parameters, in place."""
    for name, value in values.items():
        params[name].data.copy_(value)


@contextmanager
def gradients_enabled(params: LiveParams, base: Params) -> Iterator[None]:
    """The parameters require gradients; flags and the base's values are restored afterwards."""
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
