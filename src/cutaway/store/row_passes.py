"""Passes of a model over many rows, whose values survive a kill.

    with saving_passes(run.folder / "passes", console):
        ...
        fill_rows(values, batches, compute, inputs=..., weights=...)

`saving_passes` surrounds the whole measurement, so that evaluations anywhere within it are saved by
the rule of `snapshots.py`. A pass is recognised by its inputs and weights: a repeated command finds
the values of an evaluation that was finished or half done, also of one within a training.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.console import Console
from cutaway.store import files
from cutaway.store.snapshots import SaveClock, Snapshots

Rows = NDArray[np.int64]
Values = Mapping[str, NDArray[Any]]

# Passes over the same inputs that are kept; the oldest are removed.
MOST_KEPT = 16


@dataclass
class _SavedPasses:
    """Where passes are saved, and those that an earlier process left there."""

    folder: Path
    console: Console
    found: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.found = frozenset(path.name for path in self.folder.glob("*-*"))


_PASSES: ContextVar[_SavedPasses | None] = ContextVar("passes", default=None)


@contextmanager
def saving_passes(folder: Path | None, console: Console) -> Iterator[None]:
    """Passes within the block are saved in `folder`; without one nothing is saved."""
    token = _PASSES.set(None if folder is None else _SavedPasses(folder, console))
    try:
        yield
    finally:
        _PASSES.reset(token)


def fill_rows(
    values: Values,
    batches: Sequence[Rows],
    compute: Callable[[Rows], Values],
    *,
    inputs: Callable[[], str],
    weights: Callable[[], str],
) -> None:
    """Set `values[name][rows] = compute(rows)[name]` for every batch of rows.

    `inputs` is a digest of what is read, `weights` of the model's weights. They are called only
    when a pass is saved, or when an earlier process has saved one.
    """
    passes = _PASSES.get()
    one = None if passes is None else _Pass(passes, inputs, weights)
    done = 0 if one is None else one.restore(values)
    for number, rows in enumerate(batches[done:], done + 1):
        for name, block in compute(rows).items():
            values[name][rows] = block
        if one is not None:
            one.keep(values, number, at_end=number == len(batches))


class _Pass:
    """One pass: its name is made when it is needed, as the digest of all weights takes time."""

    def __init__(
        self, passes: _SavedPasses, inputs: Callable[[], str], weights: Callable[[], str]
    ) -> None:
        self._passes, self._inputs, self._weights = passes, inputs, weights
        self._clock = SaveClock()

    def restore(self, values: Values) -> int:
        """The number of batches whose values were saved; they are set."""
        if not any(name.startswith(self._prefix) for name in self._passes.found):
            return 0
        saved = self._snapshots.load() if self._name in self._passes.found else None
        if saved is None or set(saved.names) != set(values):
            return 0
        for name, value in values.items():
            value[...] = saved.tensor(name).numpy()
        return int(saved.meta["done"])

    def keep(self, values: Values, done: int, *, at_end: bool) -> None:
        """Save the values when it is time."""
        if not self._clock.due(at_end=at_end):
            return
        import torch

        began = time.monotonic()
        tensors = {name: torch.from_numpy(value) for name, value in values.items()}
        self._snapshots.save(done, tensors, {"done": done})
        self._clock.saved(began)
        if at_end:
            self._remove_old()

    @cached_property
    def _prefix(self) -> str:
        return f"{self._inputs()[:24]}-"

    @cached_property
    def _name(self) -> str:
        return f"{self._prefix}{self._weights()[:24]}"

    @cached_property
    def _snapshots(self) -> Snapshots:
        return Snapshots(self._passes.folder / self._name, Console(quiet=True))

    def _remove_old(self) -> None:
        same = self._passes.folder.glob(f"{self._prefix}*")
        kept = [path for path in same if not files.is_temporary(path)]
        kept.sort(key=lambda path: path.stat().st_mtime_ns)
        for path in kept[:-MOST_KEPT]:
            files.remove_folder(path)
