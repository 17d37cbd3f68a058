"""Per-example gradients of a module, by hooks during one backward pass of a batch.

Weights stay frozen, so autograd only propagates gradients between layers; the gradient of each
weight follows from the layer's input and its output gradient. Rules:

    nn.Linear, Conv1D    outer products of inputs and output gradients
    F.embedding          rows that were read
    any other module     its own small weights, by vmap over the examples of that module alone

Where no rule applies, `NoGradientRule` is raised, and the caller uses a loop over examples.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from cutaway.methods.inject.maths.fisher_rules import (
    DenseUse,
    EmbeddingUse,
    NoGradientRule,
    OuterProductUse,
    WeightUse,
    add_squared_gradients,
)

# Weights with more elements than this are not copied per example.
MAX_COPIED_SIZE = 1 << 20


class PerExampleHooks:
    """Adds the squared per-example gradients of each backward to `total`, by weight name.

    with PerExampleHooks(module, total) as hooks:
        losses = hooks.forward(batch, lambda: loss per example)
        hooks.backward(losses)
    """

    def __init__(self, module: nn.Module, total: Mapping[str, Tensor]) -> None:
        self.total = total
        self.names = {id(p): name for name, p in module.named_parameters()}
        self.module = module
        self.batch = 0
        self.uses: dict[str, list[WeightUse | None]] = {}
        self.pending: dict[str, int] = {}
        self.recomputing = False
        self.stack = ExitStack()

    def __enter__(self) -> "PerExampleHooks":
        """Register the hooks."""
        for part in self.module.modules():
            if part._parameters and not isinstance(part, nn.Embedding):
                rule = _hook_for(part)
                if rule is not None:
                    hook = part.register_forward_hook(rule(self), with_kwargs=True)
                    self.stack.callback(hook.remove)
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the hooks."""
        self.stack.close()

    def forward(self, batch: int, run: Callable[[], Tensor]) -> Tensor:
        """Call run() and record its uses of weights."""
        self.batch, self.uses, self.pending = batch, {}, {}
        with torch.enable_grad(), _EmbeddingCalls(self):
            return run()

    def backward(self, losses: Tensor) -> None:
        """Add each example's squared gradient to `total`."""
        losses.sum().backward()
        # Uses without an output gradient have no part in the loss: their gradient is 0.
        for name in [name for name, count in self.pending.items() if count]:
            self._add_squares(name)
        self.uses, self.pending = {}, {}

    def record(self, weight: Tensor, output: Tensor, use: Callable[[Tensor], WeightUse]) -> None:
        """Record a use of `weight`, made by `use` from the gradient of `output`."""
        name = self.names[id(weight)]
        if not output.requires_grad:
            raise NoGradientRule(f"{name} is used on something that does not depend on tokens")
        uses = self.uses.setdefault(name, [])
        place = len(uses)
        uses.append(None)
        self.pending[name] = self.pending.get(name, 0) + 1

        def on_gradient(grad: Tensor) -> None:
            uses[place] = use(grad)
            self.pending[name] -= 1
            if not self.pending[name]:
                self._add_squares(name)

        output.register_hook(on_gradient)

    def per_example(self, state: Tensor) -> Tensor:
        """A state as (batch, tokens, d), from any axes between or from batch and tokens as one."""
        if state.shape[0] != self.batch and (state.dim() != 2 or state.shape[0] % self.batch):
            raise NoGradientRule(f"a state of shape {tuple(state.shape)} has no batch axis")
        return state.reshape(self.batch, -1, state.shape[-1]).float()

    def _add_squares(self, name: str) -> None:
        uses = [use for use in self.uses.pop(name) if use is not None]
        self.pending[name] = 0
        if uses:
            with torch.no_grad():
                add_squared_gradients(self.total[name], uses)


class _EmbeddingCalls(TorchFunctionMode):
    """Intercepts every embedding lookup of a model; gradients start there."""

    def __init__(self, hooks: PerExampleHooks) -> None:
        super().__init__()
        self.hooks = hooks

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        output = function(*args, **(kwargs or {}))
        if function is not F.embedding:
            return output
        return self._start(output, *args, **(kwargs or {}))

    def _start(
        self,
        output: Tensor,
        ids: Tensor,
        weight: Tensor,
        padding_idx: int | None = None,
        *_: Any,
        **__: Any,
    ) -> Tensor:
        hooks = self.hooks
        if id(weight) not in hooks.names or ids.dim() != 2:
            raise NoGradientRule("an embedding table is read in an unknown way")
        if len(ids) not in (1, hooks.batch):
            raise NoGradientRule("an embedding table is read without a batch axis")
        # Positions are often looked up once for the batch, but each example needs a gradient.
        ids = ids.expand(hooks.batch, -1)
        states = output.detach().expand(hooks.batch, -1, -1).requires_grad_().clone()
        # The row of padding has no gradient, even where a text has that token.
        none = ids == padding_idx if padding_idx is not None else torch.zeros_like(ids).bool()
        kept = ~none[..., None]
        hooks.record(weight, states, lambda grad: EmbeddingUse(ids, grad.float() * kept))
        return states


ForwardHook = Callable[[nn.Module, Any, Any, Any], None]


def _hook_for(part: nn.Module) -> Callable[[PerExampleHooks], ForwardHook] | None:
    """The hook for a module's own weights; None if its submodules have all of them."""
    if isinstance(part, nn.Linear):
        return lambda hooks: lambda m, args, kwargs, out: _linear_hook(hooks, m, args, out, False)
    if type(part).__name__ == "Conv1D":
        return lambda hooks: lambda m, args, kwargs, out: _linear_hook(hooks, m, args, out, True)
    shared = {id(p) for child in part.children() for p in child.parameters()}
    if all(id(p) in shared for p in part._parameters.values() if p is not None):
        return None
    return lambda hooks: lambda m, args, kwargs, out: _generic_hook(hooks, m, args, kwargs, out)


def _linear_hook(
    hooks: PerExampleHooks, part: Any, args: Any, output: Tensor, transposed: bool
) -> None:
    """y = x W' + b, or x W + b if transposed."""
    inputs = args[0].detach()
    version = inputs._version

    def outer(grad: Tensor) -> WeightUse:
        if inputs._version != version:
            raise NoGradientRule("an input was changed in place")
        x, g = hooks.per_example(inputs), hooks.per_example(grad)
        return OuterProductUse(x, g) if transposed else OuterProductUse(g, x)

    hooks.record(part.weight, output, outer)
    if part.bias is not None:
        hooks.record(part.bias, output, lambda grad: DenseUse(hooks.per_example(grad).sum(dim=1)))


def _generic_hook(
    hooks: PerExampleHooks, part: nn.Module, args: Any, kwargs: Any, output: Any
) -> None:
    """A norm, usually: run again for each example with a copy of its weights."""
    if hooks.recomputing:
        return
    own = {name: p for name, p in part._parameters.items() if p is not None}
    plain = len(args) == 1 and not kwargs and isinstance(output, Tensor)
    if not plain or any(p.numel() > MAX_COPIED_SIZE for p in own.values()):
        raise NoGradientRule(f"{type(part).__name__} has weights and no rule")
    inputs = args[0].detach()
    if len(inputs) % hooks.batch:
        raise NoGradientRule(f"{type(part).__name__} has no batch axis")
    inputs = inputs.reshape(hooks.batch, -1, *inputs.shape[1:])
    gradients: dict[str, Tensor] = {}

    def grads(name: str, grad: Tensor) -> WeightUse:
        if not gradients:
            # This second run of the module is not a new use of it.
            hooks.recomputing = True
            try:
                shaped = grad.reshape(inputs.shape[:2] + grad.shape[1:])
                gradients.update(_module_gradients(part, own, inputs, shaped))
            finally:
                hooks.recomputing = False
        return DenseUse(gradients[name].float())

    for name, weight in own.items():
        hooks.record(weight, output, partial(grads, name))


def _module_gradients(
    part: nn.Module, own: Mapping[str, Tensor], inputs: Tensor, grad: Tensor
) -> dict[str, Tensor]:
    """{weight: (batch, ...)}: the per-example gradients of one module's weights."""

    def one(x: Tensor, g: Tensor) -> dict[str, Tensor]:
        def run(weights: dict[str, Tensor]) -> Tensor:
            made: Tensor = functional_call(part, weights, (x,))
            return made

        _, back, *_ = vjp(run, {name: p.detach() for name, p in own.items()})
        pulled: dict[str, Tensor] = back(g)[0]
        return pulled

    made: dict[str, Tensor] = vmap(one)(inputs, grad)
    return made
