"""Maps of the parts inside each block, and models that run with some of them in place."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.methods.shortcut.fit import Shortcut
from cutaway.methods.shortcut.fit import fit as solve
from cutaway.methods.shortcut.moments import Gatherer
from cutaway.models.anatomy import PARTS, Part
from cutaway.models.lm import LM
from cutaway.models.read import states
from cutaway.models.sites import (
    Count,
    Site,
    before,
    behind,
    counted,
    ends,
    first_state,
    with_output,
)
from cutaway.models.tokens import pad
from cutaway.run.batches import Budget, by_length
from cutaway.run.feed import Fed
from cutaway.run.screen import Screen
from cutaway.run.shortcut.maps import Maps
from cutaway.run.sweep import sweep
from cutaway.run.visitors import Seen

GROUPS: dict[str, tuple[Part, ...]] = {
    "norms": ("norm1", "norm2"),
    "attn": ("attn",),
    "mlp": ("mlp",),
}
"""What is replaced together, as in the paper."""

Jumps = Mapping[tuple[int, Part], Shortcut]


def parts_of(lm: LM) -> list[Part]:
    """The parts that a block of this family has."""
    return [part for part in PARTS if part != "block" and getattr(lm.anatomy, part) is not None]


def fit_parts(lm: LM, fed: Fed, rows: Sequence[int], screen: Screen) -> dict[str, Shortcut]:
    """One map per part of each block, `5.attn` and so on, at the marked tokens of these rows."""
    names = [(block, part) for block in range(1, lm.layers + 1) for part in parts_of(lm)]
    pairs = [(f"{block}.{part}.in", f"{block}.{part}.out") for block, part in names]
    sites = [Site(b, part, side) for b, part in names for side in ("in", "out")]
    gatherer = Gatherer(list(pairs))
    with screen.progress("parts", len(rows)) as advance, torch.no_grad():
        for batch, _ in by_length([len(fed.rows[i]) for i in rows], Budget(fixed=1024)):
            chosen = [rows[i] for i in batch.rows]
            gatherer.add(_at_marks(lm, fed, chosen, sites))
            advance(len(chosen))
    moments = gatherer.moments()
    return {
        f"{block}.{part}": solve(moments, source, [target], prior="zero")[target]
        for (block, part), (source, target) in zip(names, pairs, strict=True)
    }


def _at_marks(lm: LM, fed: Fed, rows: Sequence[int], sites: Sequence[Site]) -> dict[Any, Tensor]:
    """{`5.attn.in`: (examples, d)} of one batch."""
    ids, mask = (x.to(lm.device) for x in pad([fed.rows[i] for i in rows], lm.pad_id))
    shown = states(lm, ids, mask, layers=(), sites=sites).sites
    who = torch.cat([torch.full((len(fed.marks[i]),), n) for n, i in enumerate(rows)])
    where = torch.cat([torch.as_tensor(fed.marks[i]) for i in rows])
    return {
        f"{site.layer}.{site.part}.{site.side}": state[who, where].float().cpu()
        for site, state in shown.items()
    }


@contextmanager
def replaced(lm: LM, jumps: Jumps, *, start: int) -> Iterator[None]:
    """Blocks after layer `start` run with their maps in place of the real parts."""
    with ExitStack() as stack:
        count = counted(stack, lm)
        for part in dict.fromkeys(part for _, part in jumps):
            for block in lm.blocks:
                _replace(stack, *ends(lm, block, part), part, jumps, start, count)
        yield


def _replace(
    stack: ExitStack,
    first: nn.Module,
    last: nn.Module,
    part: Part,
    jumps: Jumps,
    start: int,
    count: Count,
) -> None:
    entered: list[Tensor] = []

    def enter(_: nn.Module, args: Any, kwargs: Any) -> None:
        entered[:] = [first_state(args, kwargs)]

    def leave(_: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        jump = jumps.get((count.block, part)) if count.block > start else None
        return output if jump is None else with_output(output, jump(entered.pop()))

    before(stack, first, enter)
    behind(stack, last, leave)


def final_states(
    lm: LM, fed: Fed, rows: Sequence[int], maps: Maps, group: str, start: int
) -> Tensor:
    """Layer L at the marks of these rows when a group of parts is replaced after `start`."""
    jumps: dict[tuple[int, Part], Shortcut] = {}
    for block in range(start + 1, lm.layers + 1):
        for part in GROUPS[group]:
            jump = maps.part(block, part)
            if jump is not None:
                jumps[block, part] = jump
    kept = Kept((lm.layers,))
    todo = torch.as_tensor(rows).numpy()
    with replaced(lm, jumps, start=start):
        sweep(lm, fed, [kept], screen=Screen(quiet=True), todo=todo, budget=Budget(fixed=1024))
    return torch.cat([kept.found[int(row)] for row in rows])


@dataclass
class Kept:
    """A visitor that keeps the states of its layer at the marks, by row."""

    layers: tuple[int, ...]
    attention: bool = False
    found: dict[int, Tensor] = field(default_factory=dict)

    def visit(self, layer: int, hidden: Tensor, weights: Tensor | None, seen: Seen) -> None:
        """Take the marked tokens."""
        assert seen.marks is not None, "shortcut texts always have marks"
        for place, row in enumerate(seen.rows.tolist()):
            self.found[row] = hidden[place, seen.marks[place].bool()].float().cpu()

    def end(self, seen: Seen) -> None:
        """Nothing waits for the end of a batch."""
