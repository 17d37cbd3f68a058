"""Maps of the parts inside each block, and models that run with some of them in place."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cutaway.console import Console
from cutaway.extract.forward_pass import run_pass
from cutaway.extract.token_rows import TokenRows
from cutaway.extract.visitors import VisitedBatch
from cutaway.methods.shortcut.maps import ShortcutMaps
from cutaway.methods.shortcut.maths.fit import Shortcut
from cutaway.methods.shortcut.maths.fit import fit_shortcuts as solve
from cutaway.methods.shortcut.maths.moments import MomentAccumulator
from cutaway.models.anatomy import BLOCK_PARTS, BlockPart
from cutaway.models.batches import TokenBudget, batches_by_length
from cutaway.models.lm import LM
from cutaway.models.read import collect_states
from cutaway.models.sites import Site
from cutaway.models.swap import swapped_parts
from cutaway.models.tokens import pad

PART_GROUPS: dict[str, tuple[BlockPart, ...]] = {
    "norms": ("norm1", "norm2"),
    "attn": ("attn",),
    "mlp": ("mlp",),
}
"""What is replaced together, as in the paper."""

PartMaps = Mapping[tuple[int, BlockPart], Shortcut]


def available_parts(lm: LM) -> list[BlockPart]:
    """The parts that a block of this family has."""
    return [
        part for part in BLOCK_PARTS if part != "block" and getattr(lm.anatomy, part) is not None
    ]


def fit_parts(lm: LM, fed: TokenRows, rows: Sequence[int], console: Console) -> dict[str, Shortcut]:
    """One map per part of each block, `5.attn` and so on, at the marked tokens of these rows."""
    names = [(block, part) for block in range(1, lm.layers + 1) for part in available_parts(lm)]
    pairs = [(f"{block}.{part}.in", f"{block}.{part}.out") for block, part in names]
    sites = [Site(b, part, side) for b, part in names for side in ("in", "out")]
    gatherer = MomentAccumulator(list(pairs))
    with console.progress("parts", len(rows)) as advance, torch.no_grad():
        for batch, _ in batches_by_length(
            [len(fed.rows[i]) for i in rows], TokenBudget(fixed=1024)
        ):
            chosen = [rows[i] for i in batch.rows]
            gatherer.add(_part_states_at_marks(lm, fed, chosen, sites))
            advance(len(chosen))
    moments = gatherer.moments()
    return {
        f"{block}.{part}": solve(moments, source, [target], prior="zero")[target]
        for (block, part), (source, target) in zip(names, pairs, strict=True)
    }


def _part_states_at_marks(
    lm: LM, fed: TokenRows, rows: Sequence[int], sites: Sequence[Site]
) -> dict[Any, Tensor]:
    """{`5.attn.in`: (examples, d)} of one batch."""
    ids, mask = (x.to(lm.device) for x in pad([fed.rows[i] for i in rows], lm.pad_id))
    shown = collect_states(lm, ids, mask, layers=(), sites=sites).sites
    who = torch.cat([torch.full((len(fed.marks[i]),), n) for n, i in enumerate(rows)])
    where = torch.cat([torch.as_tensor(fed.marks[i]) for i in rows])
    return {
        f"{site.layer}.{site.part}.{site.side}": state[who, where].float().cpu()
        for site, state in shown.items()
    }


@contextmanager
def parts_replaced(lm: LM, jumps: PartMaps, *, start: int) -> Iterator[None]:
    """Blocks after layer `start` run with their maps in place of the real parts."""
    functions = {Site(block, part): jump for (block, part), jump in jumps.items() if block > start}
    with swapped_parts(lm, functions):
        yield


def final_states(
    lm: LM, fed: TokenRows, rows: Sequence[int], maps: ShortcutMaps, group: str, start: int
) -> Tensor:
    """Layer L at the marks of these rows when a group of parts is replaced after `start`."""
    jumps: dict[tuple[int, BlockPart], Shortcut] = {}
    for block in range(start + 1, lm.layers + 1):
        for part in PART_GROUPS[group]:
            jump = maps.part(block, part)
            if jump is not None:
                jumps[block, part] = jump
    kept = MarkedStates((lm.layers,))
    todo = torch.as_tensor(rows).numpy()
    with parts_replaced(lm, jumps, start=start):
        run_pass(
            lm, fed, [kept], console=Console(quiet=True), todo=todo, budget=TokenBudget(fixed=1024)
        )
    return torch.cat([kept.found[int(row)] for row in rows])


@dataclass
class MarkedStates:
    """A visitor that keeps the states of its layer at the marks, by row."""

    layers: tuple[int, ...]
    attention: bool = False
    found: dict[int, Tensor] = field(default_factory=dict)

    def visit(self, layer: int, hidden: Tensor, weights: Tensor | None, seen: VisitedBatch) -> None:
        """Take the marked tokens."""
        assert seen.marks is not None, "shortcut texts always have marks"
        for place, row in enumerate(seen.rows.tolist()):
            self.found[row] = hidden[place, seen.marks[place].bool()].float().cpu()

    def end(self, seen: VisitedBatch) -> None:
        """Nothing waits for the end of a batch."""
