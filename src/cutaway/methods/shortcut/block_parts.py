"""Maps of the parts inside each block, and models that run with maps in place of parts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.console import Console
from cutaway.core.digest import digest_json
from cutaway.extract.forward_pass import VisitedBatch, run_pass
from cutaway.extract.request import TokenRows
from cutaway.methods.shortcut.cross_products import restore_sums, save_sums
from cutaway.methods.shortcut.maps import ShortcutMaps
from cutaway.methods.shortcut.maths.fit import Shortcut, fit_shortcuts
from cutaway.methods.shortcut.maths.moments import MomentAccumulator
from cutaway.models.batches import TokenBudget, batches_by_length
from cutaway.models.block_layout import BLOCK_PARTS, BlockPart
from cutaway.models.hooks import collect_states
from cutaway.models.lm import LM
from cutaway.models.sites import Site
from cutaway.models.swap import swapped_parts
from cutaway.models.tokens import pad
from cutaway.store.row_passes import fill_rows
from cutaway.store.snapshots import Snapshots

PART_GROUPS: dict[str, tuple[BlockPart, ...]] = {
    "norms": ("norm1", "norm2"),
    "attn": ("attn",),
    "mlp": ("mlp",),
}
"""Parts that are replaced together, as in the paper."""
PART_BUDGET = TokenBudget(fixed=1024)

PartMaps = Mapping[tuple[int, BlockPart], Shortcut]


def available_parts(lm: LM) -> list[BlockPart]:
    """The parts that a block of this family has."""
    return [
        part for part in BLOCK_PARTS if part != "block" and getattr(lm.anatomy, part) is not None
    ]


def fit_parts(
    lm: LM, inputs: TokenRows, rows: Sequence[int], console: Console, folder: Path | None = None
) -> dict[str, Shortcut]:
    """One map per part of each block, `5.attn` and so on, at the marked tokens of these rows.

    Unfinished sums are saved in `folder`.
    """
    names = [(block, part) for block in range(1, lm.layers + 1) for part in available_parts(lm)]
    pairs = [(f"{block}.{part}.in", f"{block}.{part}.out") for block, part in names]
    sites = [Site(block, part, side) for block, part in names for side in ("in", "out")]
    accumulator, lengths = MomentAccumulator(list(pairs)), [len(inputs.rows[i]) for i in rows]
    snapshots = Snapshots(folder, console)
    restore_sums(accumulator, snapshots)
    wanted = sum(len(inputs.marks[i]) for i in rows)
    with console.progress("parts", len(rows)) as advance, torch.no_grad():
        for batch, _ in batches_by_length(lengths, PART_BUDGET):
            chosen = [rows[i] for i in batch.rows]
            if not accumulator.skip(sum(len(inputs.marks[i]) for i in chosen)):
                accumulator.add(_part_states_at_marks(lm, inputs, chosen, sites))
                save_sums(accumulator, snapshots, at_end=accumulator.rows == wanted)
            advance(len(chosen))
    moments = accumulator.moments()
    return {
        f"{block}.{part}": fit_shortcuts(moments, source, [target], prior="zero")[target]
        for (block, part), (source, target) in zip(names, pairs, strict=True)
    }


def _part_states_at_marks(
    lm: LM, inputs: TokenRows, rows: Sequence[int], sites: Sequence[Site]
) -> dict[Any, Tensor]:
    """{`5.attn.in`: (examples, d)} of one batch."""
    ids, mask = (x.to(lm.device) for x in pad([inputs.rows[i] for i in rows], lm.pad_id))
    states = collect_states(lm, ids, mask, layers=(), sites=sites).sites
    row = torch.cat([torch.full((len(inputs.marks[i]),), n) for n, i in enumerate(rows)])
    position = torch.cat([torch.as_tensor(inputs.marks[i]) for i in rows])
    return {
        f"{site.layer}.{site.part}.{site.side}": state[row, position].float().cpu()
        for site, state in states.items()
    }


@contextmanager
def parts_replaced(lm: LM, maps: PartMaps, *, start: int) -> Iterator[None]:
    """Run blocks after layer `start` with maps in place of their parts."""
    functions = {Site(block, part): jump for (block, part), jump in maps.items() if block > start}
    with swapped_parts(lm, functions):
        yield


def final_states(
    lm: LM, inputs: TokenRows, rows: Sequence[int], maps: ShortcutMaps, group: str, start: int
) -> Tensor:
    """Layer L at the marks of these rows when a group of parts is replaced after `start`."""
    replacements: dict[tuple[int, BlockPart], Shortcut] = {}
    for block in range(start + 1, lm.layers + 1):
        for part in PART_GROUPS[group]:
            jump = maps.part(block, part)
            if jump is not None:
                replacements[block, part] = jump

    def states_of(some: Sequence[int]) -> dict[int, Tensor]:
        visitor, quiet = MarkedStates((lm.layers,)), Console(quiet=True)
        run_pass(lm, inputs, [visitor], console=quiet, todo=np.array(some), budget=PART_BUDGET)
        return visitor.states

    with parts_replaced(lm, replacements, start=start):
        return states_at_marks(lm, inputs, rows, states_of, [maps.digest, group, start])


def states_at_marks(
    lm: LM,
    inputs: TokenRows,
    rows: Sequence[int],
    states_of: Callable[[Sequence[int]], Mapping[int, Tensor]],
    what: Sequence[Any],
) -> Tensor:
    """The states at the marks of these rows, one row after the other, computed in batches.

    `states_of` gives those of a batch by row; `what` (JSON) says in which changed model.
    """
    marks = [len(inputs.marks[i]) for i in rows]
    states = np.zeros((len(rows), max(marks), lm.width), dtype=np.float32)

    def batch_states(some: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
        found, block = states_of([rows[i] for i in some]), np.zeros_like(states[some])
        for n, i in enumerate(some):
            block[n, : marks[i]] = found[rows[i]].numpy()
        return {"states": block}

    lengths = [len(inputs.rows[i]) for i in rows]
    fill_rows(
        {"states": states},
        [batch.rows for batch, _ in batches_by_length(lengths, PART_BUDGET)],
        batch_states,
        inputs=lambda: digest_json(
            [*what, [inputs.rows[i] for i in rows], [list(map(int, inputs.marks[i])) for i in rows]]
        ),
        weights=lambda: lm.digest,
    )
    return torch.cat([torch.from_numpy(one[:n]) for one, n in zip(states, marks, strict=True)])


@dataclass
class MarkedStates:
    """A visitor that collects the states of its layer at the marks, by row."""

    layers: tuple[int, ...]
    attention: bool = False
    states: dict[int, Tensor] = field(default_factory=dict)

    def visit(
        self, layer: int, hidden: Tensor, weights: Tensor | None, batch: VisitedBatch
    ) -> None:
        """Take the marked tokens."""
        assert batch.marks is not None, "shortcut texts always have marks"
        for n, row in enumerate(batch.rows.tolist()):
            self.states[row] = hidden[n, batch.marks[n].bool()].float().cpu()

    def end(self, batch: VisitedBatch) -> None:
        """Nothing to do at the end of a batch."""
