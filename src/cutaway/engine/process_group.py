"""Several processes that train one model together, started by accelerate (or torchrun).

Each has a copy of the model and takes its share of every batch; gradients are averaged so that a
step is the step of the whole batch. The first process alone evaluates and writes, the others do
as it says.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Rows = NDArray[np.int64]
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class ProcessGroup:
    """How many processes train together, and which one this is; alone it costs nothing."""

    size: int = 1
    rank: int = 0

    @property
    def first(self) -> bool:
        """Whether this process evaluates and writes."""
        return self.rank == 0

    def share(self, rows: Rows) -> Rows:
        """This process's rows of a batch; all of them where there are fewer than processes."""
        return rows if len(rows) < self.size else np.array_split(rows, self.size)[self.rank]

    def weight(self, rows: Rows, amount: Callable[[Rows], float] = len) -> float:
        """What the mean over this share counts for, so that the team's mean is the batch's.

        `amount` is what the mean runs over: rows, or the tokens in them.
        """
        if len(rows) < self.size:
            return 1.0
        return amount(self.share(rows)) * self.size / amount(rows)

    def average(self, params: Mapping[str, "Tensor"]) -> None:
        """Every gradient is the mean over the team."""
        if self.size > 1:
            from accelerate.utils import reduce

            for value in params.values():
                if value.grad is not None:
                    value.grad = reduce(value.grad, "mean")

    def mean(self, values: Mapping[str, float]) -> dict[str, float]:
        """Each number as its mean over the team."""
        if self.size == 1:
            return dict(values)
        import torch
        from accelerate.utils import reduce

        names, device = sorted(values), _device()
        found = reduce(torch.tensor([values[n] for n in names], device=device).double(), "mean")
        return dict(zip(names, found.tolist(), strict=True))

    def broadcast(self, make: Callable[[], ResultT]) -> ResultT:
        """What the first process makes; the others wait for it."""
        if self.size == 1:
            return make()
        from accelerate.utils import broadcast_object_list

        box: list[Any] = [make() if self.first else None]
        said: ResultT = broadcast_object_list(box)[0]
        return said

    def rank0_first(self, make: Callable[[], ResultT]) -> ResultT:
        """Made by the first process, then by the others, which find what it kept."""
        if not self.first:
            self.wait()
        said = make()
        if self.first:
            self.wait()
        return said

    def wait(self) -> None:
        """Nobody goes on before all are here."""
        if self.size > 1:
            from accelerate.utils import wait_for_everyone

            wait_for_everyone()


def process_group(device: str = "auto") -> ProcessGroup:
    """The processes that were launched together; asked before a model is opened.

    The first call decides the device: with GPUs each process has its own from then on.
    """
    if not is_distributed():
        return ProcessGroup()
    import torch
    from accelerate import PartialState

    state = PartialState(cpu=device == "cpu" or not torch.cuda.is_available())
    return ProcessGroup(state.num_processes, state.process_index)


def is_distributed() -> bool:
    """Whether a launcher started this process as one of several."""
    said = os.environ.get("WORLD_SIZE", "1")
    return said.isdigit() and int(said) > 1


def _device() -> Any:
    from accelerate import PartialState

    return PartialState().device
