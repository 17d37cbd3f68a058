"""Models that run some blocks and jump over the others, as a schedule says."""

from itertools import groupby

import torch
from torch import Tensor

from cutaway.extract.token_rows import TokenRows
from cutaway.methods.shortcut.maps import ShortcutMaps
from cutaway.methods.shortcut.maths.schedule import (
    SkipSchedule,
    alternating_schedule,
    best_schedules,
)
from cutaway.models.batches import TokenBudget, batches_by_length
from cutaway.models.lm import LM
from cutaway.models.read import collect_states, run_from
from cutaway.models.tokens import pad

R2ByPair = dict[tuple[int, int], float]


def candidate_schedules(r2: R2ByPair, layers: int, most: int = 6) -> dict[str, SkipSchedule]:
    """The best schedules by r2 for a few numbers of blocks, and the paper's alternations."""
    best = best_schedules({pair: 1 - value for pair, value in r2.items()}, layers)
    inner = [way for way in best if 0 < way.blocks < layers]
    step = max(1, len(inner) // most)
    named = {f"schedule:{way.blocks}": way for way in inner[step - 1 :: step]}
    return named | {
        f"alternate:{run}+{jump}": alternating_schedule(layers, run, jump)
        for run, jump in ((1, 1), (2, 1), (3, 1))
        if run + jump <= layers
    }


@torch.inference_mode()
def run_schedule(
    lm: LM, fed: TokenRows, rows: list[int], maps: ShortcutMaps, way: SkipSchedule
) -> Tensor:
    """Layer L at the marks of these rows when the model goes this way."""
    found: dict[int, Tensor] = {}
    for batch, _ in batches_by_length([len(fed.rows[i]) for i in rows], TokenBudget(fixed=1024)):
        chosen = [rows[i] for i in batch.rows]
        ids, mask = (x.to(lm.device) for x in pad([fed.rows[i] for i in chosen], lm.pad_id))
        hidden = collect_states(lm, ids, mask, [0]).layers[0]
        for kind, steps in groupby(way.steps, key=lambda step: step[2]):
            hidden = _run_steps(lm, hidden, mask, maps, kind, list(steps))
        for place, row in enumerate(chosen):
            found[row] = hidden[place, torch.as_tensor(fed.marks[row])].float().cpu()
    return torch.cat([found[row] for row in rows])


def _run_steps(
    lm: LM,
    hidden: Tensor,
    mask: Tensor,
    maps: ShortcutMaps,
    kind: str,
    steps: list[tuple[int, int, str]],
) -> Tensor:
    """The states after a few steps of one kind."""
    if kind == "run":
        return run_from(lm, hidden, steps[0][0], mask, to=steps[-1][1])
    for source, target, _ in steps:
        hidden = maps.jump(source, target)(hidden)
    return hidden
