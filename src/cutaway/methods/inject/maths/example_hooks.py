"""Per-example gradients of a module, seen by hooks while one backward goes through a batch.

Weights stay frozen, so autograd only carries gradients from layer to layer; what each weight's own
gradient would be is taken from what goes in and what comes back. Rules:

    nn.Linear, Conv1D    outer products of inputs and what comes back
    F.embedding          rows that were read
    any other module     its own small weights, by vmap over the examples of that module alone

What no rule fits raises `NoRule`, and the caller goes example by example.
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

# A weight of more numbers than this has no per-example copy made of it.
MAX_COPIED_SIZE = 1 << 20


class PerExampleHooks:
    """Adds the squared per-example gradients of each backward to `total`, by weight name.

    with Watch(module, total) as watch:
        losses = watch.forward(batch, lambda: loss per example)
        watch.backward(losses)
    """

    def __init__(self, module: nn.Module, total: Mapping[str, Tensor]) -> None:
        self.total = total
        self.names = {id(p): name for name, p in module.named_parameters()}
        self.module = module
        self.batch = 0
        self.uses: dict[str, list[WeightUse | None]] = {}
        self.waiting: dict[str, int] = {}
        self.resting = False
        self.stack = ExitStack()

    def __enter__(self) -> "PerExampleHooks":
        """The module is watched."""
        for part in self.module.modules():
            if part._parameters and not isinstance(part, nn.Embedding):
                rule = _hook_for(part)
                if rule is not None:
                    hook = part.register_forward_hook(rule(self), with_kwargs=True)
                    self.stack.callback(hook.remove)
        return self

    def __exit__(self, *_: object) -> None:
        """The module is as it was."""
        self.stack.close()

    def forward(self, batch: int, run: Callable[[], Tensor]) -> Tensor:
        """run() with its uses of weights written down."""
        self.batch, self.uses, self.waiting = batch, {}, {}
        with torch.enable_grad(), _EmbeddingCalls(self):
            return run()

    def backward(self, losses: Tensor) -> None:
        """Each example's gradient, squared, is in `total`."""
        losses.sum().backward()
        # What never came back has no part in the loss: its gradient is 0.
        for name in [name for name, count in self.waiting.items() if count]:
            self._finish(name)
        self.uses, self.waiting = {}, {}

    def note(self, weight: Tensor, output: Tensor, use: Callable[[Tensor], WeightUse]) -> None:
        """Wait for what comes back at `output`; `use` makes it a use of `weight`."""
        name = self.names[id(weight)]
        if not output.requires_grad:
            raise NoGradientRule(f"{name} is used on something that is not made from tokens")
        uses = self.uses.setdefault(name, [])
        place = len(uses)
        uses.append(None)
        self.waiting[name] = self.waiting.get(name, 0) + 1

        def came_back(grad: Tensor) -> None:
            uses[place] = use(grad)
            self.waiting[name] -= 1
            if not self.waiting[name]:
                self._finish(name)

        output.register_hook(came_back)

    def per_example(self, state: Tensor) -> Tensor:
        """(batch, tokens, d) of a state with any axes between, or with batch and tokens as one."""
        if state.shape[0] != self.batch and (state.dim() != 2 or state.shape[0] % self.batch):
            raise NoGradientRule(f"a state of shape {tuple(state.shape)} has no axis of examples")
        return state.reshape(self.batch, -1, state.shape[-1]).float()

    def _finish(self, name: str) -> None:
        uses = [use for use in self.uses.pop(name) if use is not None]
        self.waiting[name] = 0
        if uses:
            with torch.no_grad():
                add_squared_gradients(self.total[name], uses)


class _EmbeddingCalls(TorchFunctionMode):
    """Sees every look-up in a table, wherever a family does it; there gradients begin."""

    def __init__(self, watch: PerExampleHooks) -> None:
        super().__init__()
        self.watch = watch

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        found = function(*args, **(kwargs or {}))
        return self._begin(found, *args) if function is F.embedding else found

    def _begin(self, found: Tensor, ids: Tensor, weight: Tensor, *_: Any) -> Tensor:
        watch = self.watch
        if id(weight) not in watch.names or ids.dim() != 2:
            raise NoGradientRule("a table is read in an unknown way")
        if len(ids) not in (1, watch.batch):
            raise NoGradientRule("a table is read without an axis of examples")
        # Positions are often looked up once for all examples: each needs its own gradient.
        ids = ids.expand(watch.batch, -1)
        begun = found.detach().expand(watch.batch, -1, -1).requires_grad_().clone()
        watch.note(weight, begun, lambda grad: EmbeddingUse(ids, grad.float()))
        return begun


ForwardHook = Callable[[nn.Module, Any, Any, Any], None]


def _hook_for(part: nn.Module) -> Callable[[PerExampleHooks], ForwardHook] | None:
    """The hook for a module's own weights; None for one that only lends them to its parts."""
    if isinstance(part, nn.Linear):
        return lambda watch: lambda m, args, kwargs, out: _linear_hook(watch, m, args, out, False)
    if type(part).__name__ == "Conv1D":
        return lambda watch: lambda m, args, kwargs, out: _linear_hook(watch, m, args, out, True)
    lent = {id(p) for child in part.children() for p in child.parameters()}
    if all(id(p) in lent for p in part._parameters.values() if p is not None):
        return None
    return lambda watch: lambda m, args, kwargs, out: _generic_hook(watch, m, args, kwargs, out)


def _linear_hook(
    watch: PerExampleHooks, part: Any, args: Any, output: Tensor, turned: bool
) -> None:
    """y = x W' + b, or x W + b for the turned kind."""
    given = args[0].detach()
    version = given._version

    def outer(grad: Tensor) -> WeightUse:
        if given._version != version:
            raise NoGradientRule("an input was changed in place")
        x, g = watch.per_example(given), watch.per_example(grad)
        return OuterProductUse(x, g) if turned else OuterProductUse(g, x)

    watch.note(part.weight, output, outer)
    if part.bias is not None:
        watch.note(part.bias, output, lambda grad: DenseUse(watch.per_example(grad).sum(dim=1)))


def _generic_hook(
    watch: PerExampleHooks, part: nn.Module, args: Any, kwargs: Any, output: Any
) -> None:
    """A norm, mostly: run again for each example, with a copy of its weights each."""
    if watch.resting:
        return
    own = {name: p for name, p in part._parameters.items() if p is not None}
    plain = len(args) == 1 and not kwargs and isinstance(output, Tensor)
    if not plain or any(p.numel() > MAX_COPIED_SIZE for p in own.values()):
        raise NoGradientRule(f"{type(part).__name__} has weights of its own and no rule")
    given = args[0].detach()
    if len(given) % watch.batch:
        raise NoGradientRule(f"{type(part).__name__} sees no axis of examples")
    given = given.reshape(watch.batch, -1, *given.shape[1:])
    found: dict[str, Tensor] = {}

    def grads(name: str, grad: Tensor) -> WeightUse:
        if not found:
            # The module is run again, which is no new use of it.
            watch.resting = True
            try:
                shaped = grad.reshape(given.shape[:2] + grad.shape[1:])
                found.update(_module_gradients(part, own, given, shaped))
            finally:
                watch.resting = False
        return DenseUse(found[name].float())

    for name, weight in own.items():
        watch.note(weight, output, partial(grads, name))


def _module_gradients(
    part: nn.Module, own: Mapping[str, Tensor], given: Tensor, grad: Tensor
) -> dict[str, Tensor]:
    """{weight: (batch, ...)}: the gradients of one module's weights, example by example."""

    def one(x: Tensor, g: Tensor) -> dict[str, Tensor]:
        def run(weights: dict[str, Tensor]) -> Tensor:
            made: Tensor = functional_call(part, weights, (x,))
            return made

        _, back, *_ = vjp(run, {name: p.detach() for name, p in own.items()})
        pulled: dict[str, Tensor] = back(g)[0]
        return pulled

    made: dict[str, Tensor] = vmap(one)(given, grad)
    return made
