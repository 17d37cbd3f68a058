"""Is a difference rounding? Limits from the rounding noise of this model in this precision.

Kernels sum in another order for another batch, and a model amplifies this rounding by a factor of
its own: 3 in one, 200 in another, 10^5 times that in bfloat16. So no constant separates rounding
from a fault. The noise is measured instead: every entry of every block's input is multiplied by
1 ± one unit in the last place, at random, and the result is compared with the undisturbed one. In
sound models a changed batch or padding moves the states by 0.1 to 1.3 times this noise; a wrong
position, mask or norm by 10^4 times in float32.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from cutaway.core.float64 import to_float64
from cutaway.models.lm import LM
from cutaway.models.memory import free_memory
from cutaway.models.sites import add_pre_hook, input_state, replace_input_state

T = TypeVar("T")
Verdict = Literal["fine", "noisy", "wrong"]
VERDICTS: tuple[Verdict, ...] = ("fine", "noisy", "wrong")
# Up to this multiple of the noise a difference is rounding; above the second one it isn't.
FINE, WRONG = 3.0, 10.0
# A wrong position or mask changes a state by a tenth and more: a larger noise can hide it.
BLINDING_NOISE = 0.3
DRAWS = 2
WIDER = {"float16": torch.float32, "bfloat16": torch.float32, "float32": torch.float64}
"""The precision in which rounding disappears and a fault stays."""


def judge(measured: float, noise: float) -> Verdict:
    """fine: a difference within the noise; noisy: above it, or noise that could hide a fault;
    wrong: far above it, or not a number."""
    if not (math.isfinite(measured) and math.isfinite(noise)) or measured > WRONG * noise:
        return "wrong"
    return "fine" if measured <= FINE * noise and noise <= BLINDING_NOISE else "noisy"


def relative_error(ours: Tensor, plain: Tensor) -> float:
    """|ours - plain| / |plain| of the vectors along the last axis, as a root mean square.

    Infinite if the shapes differ or a value isn't finite.
    """
    if ours.shape != plain.shape:
        return float("inf")
    one, two = to_float64(ours), to_float64(plain)
    error = (one - two).norm(dim=-1) / two.norm(dim=-1).clamp(min=1e-300)
    typical = float(error.square().mean().sqrt())
    return typical if math.isfinite(typical) else float("inf")


def rounding_noise(
    lm: LM, read: Callable[[], Mapping[str, Tensor]], plain: Mapping[str, Tensor]
) -> dict[str, float]:
    """The relative error of all that `read` returns when the inputs of blocks are disturbed in the
    last place: the root mean square of some draws. `plain` is `with_seed(lm, read)`."""
    squares = dict.fromkeys(plain, 0.0)
    for draw in range(DRAWS):
        with disturbed(lm, draw):
            got = with_seed(lm, read)
        for name, value in plain.items():
            squares[name] += relative_error(got[name], value) ** 2
    return {name: math.sqrt(total / DRAWS) for name, total in squares.items()}


@contextmanager
def disturbed(lm: LM, seed: int) -> Iterator[None]:
    """Within it, every entry of every block's input is changed by one unit in the last place."""
    rng = torch.Generator().manual_seed(seed)
    # transformers computes norms and softmax in float32, also in a float64 model. Quantised layers
    # round their inputs to 16 bits or fewer, and int8 depends on the other rows of a batch.
    least = torch.float16 if _is_quantised(lm) else torch.float32

    def disturb(_: nn.Module, args: Any, kwargs: Any) -> Any:
        state = input_state(args, kwargs)
        signs = torch.randint(2, state.shape, generator=rng).to(state) * 2 - 1
        unit = max(torch.finfo(dtype).eps for dtype in (state.dtype, least))
        return replace_input_state(args, kwargs, state * (1 + signs * unit))

    with ExitStack() as stack:
        for block in lm.blocks:
            add_pre_hook(stack, block, disturb)
        yield


def _is_quantised(lm: LM) -> bool:
    """Whether layers are quantised, by us or in the checkpoint."""
    return lm.quantise != "none" or bool(getattr(lm.module, "is_quantized", False))


def with_seed(lm: LM, read: Callable[[], T]) -> T:
    """What `read` returns from a fixed random state, so that dropout left on isn't in the noise."""
    with torch.random.fork_rng(devices=[lm.device] if lm.device.startswith("cuda") else []):
        torch.manual_seed(0)
        return read()


@contextmanager
def wider_precision(lm: LM) -> Iterator[bool]:
    """Within it the weights have twice the digits.

    Yields False, and changes nothing, where that is impossible: float64, quantised or distributed
    weights, too little memory, a device without float64.
    """
    distributed = bool(lm.device_map) or _is_quantised(lm)
    wider = None if distributed else WIDER.get(lm.dtype)
    tensors = [*lm.module.parameters(), *lm.module.buffers()]
    floating = [t for t in tensors if t.is_floating_point() and t.dtype != wider]
    need = 0 if wider is None else wider.itemsize * sum(t.numel() for t in floating)
    if wider is None or need > 0.8 * (free_memory(lm.device) or 0):
        yield False
        return
    original = [t.data for t in floating]
    with ExitStack() as stack:
        kernels: dict[str, Any] = getattr(lm.module, "get_experts_implementation", dict)()
        if set(kernels.values()) - {"eager", None}:
            # The fast kernels of mixtures of experts have no float64.
            stack.callback(lm.module.set_experts_implementation, kernels)
            lm.module.set_experts_implementation("eager")
        for tensor, data in zip(floating, original, strict=True):
            stack.callback(setattr, tensor, "data", data)
            tensor.data = data.to(wider)
        yield True
