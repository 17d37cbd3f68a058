"""Data-parallel training in several processes, started by accelerate (or torchrun).

Each process has a copy of the model and computes its share of every batch; gradients are averaged,
so a step equals the step on the full batch. Only rank 0 evaluates and writes files.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cutaway.core.float64 import to_float64

if TYPE_CHECKING:
    from torch import Tensor

Rows = NDArray[np.int64]
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class ProcessGroup:
    """Number of processes that train together, and the rank of this one."""

    size: int = 1
    rank: int = 0

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which evaluates and writes."""
        return self.rank == 0

    def share(self, rows: Rows) -> Rows:
        """This process's rows of a batch; all rows if there are fewer rows than processes."""
        return rows if len(rows) < self.size else np.array_split(rows, self.size)[self.rank]

    def weight(self, rows: Rows, amount: Callable[[Rows], float] = len) -> float:
        """Weight of this share's mean, so that the average over processes is the batch's mean.

        `amount` counts what the mean is taken over: rows, or their tokens.
        """
        if len(rows) < self.size:
            return 1.0
        return amount(self.share(rows)) * self.size / amount(rows)

    def average(self, params: Mapping[str, "Tensor"]) -> None:
        """Average every gradient over the processes, in place."""
        if self.size > 1:
            from accelerate.utils import reduce

            for value in params.values():
                if value.grad is not None:
                    value.grad = reduce(value.grad, "mean")

    def mean(self, values: Mapping[str, float]) -> dict[str, float]:
        """Each number averaged over the processes."""
        if self.size == 1:
            return dict(values)
        import torch
        from accelerate import PartialState
        from accelerate.utils import reduce

        names = sorted(values)
        local = torch.tensor([values[n] for n in names], device=PartialState().device)
        return dict(zip(names, reduce(to_float64(local), "mean").tolist(), strict=True))

    def broadcast(self, make: Callable[[], ResultT]) -> ResultT:
        """What `make` returns on rank 0, sent to all processes."""
        if self.size == 1:
            return make()
        from accelerate.utils import broadcast_object_list

        values: list[Any] = [make() if self.first else None]
        result: ResultT = broadcast_object_list(values)[0]
        return result

    def rank0_first(self, make: Callable[[], ResultT]) -> ResultT:
        """Call `make` on rank 0, then on the others, which find its cached files."""
        if not self.first:
            self.wait()
        result = make()
        if self.first:
            self.wait()
        return result

    def wait(self) -> None:
        """Barrier: continue when all processes have arrived."""
        if self.size > 1:
            from accelerate.utils import wait_for_everyone

            wait_for_everyone()


def process_group(device: str = "auto") -> ProcessGroup:
    """The processes that were launched together; call it before opening a model.

    The first call assigns the device: with GPUs, each process gets one.
    """
    if not is_distributed():
        return ProcessGroup()
    import torch
    from accelerate import PartialState

    state = PartialState(cpu=device == "cpu" or not torch.cuda.is_available())
    return ProcessGroup(state.num_processes, state.process_index)


def is_distributed() -> bool:
    """Whether a launcher started this process as one of several."""
    world_size = os.environ.get("WORLD_SIZE", "1")
    return world_size.isdigit() and int(world_size) > 1
