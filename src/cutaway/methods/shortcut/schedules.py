"""Skip schedules: models that run some blocks and jump over the others."""

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from cutaway.extract.request import TokenRows
from cutaway.methods.shortcut.block_parts import states_at_marks
from cutaway.methods.shortcut.maps import ShortcutMaps
from cutaway.methods.shortcut.maths.schedule import (
    SkipSchedule,
    alternating_schedule,
    best_schedules,
)
from cutaway.models.hooks import collect_states, run_from
from cutaway.models.lm import LM
from cutaway.models.tokens import pad

R2ByPair = dict[tuple[int, int], float]


def candidate_schedules(r2: R2ByPair, layers: int, most: int = 6) -> dict[str, SkipSchedule]:
    """The best schedules by r2 for a few numbers of blocks, and the paper's alternations."""
    best = best_schedules({pair: 1 - value for pair, value in r2.items()}, layers)
    inner = [schedule for schedule in best if 0 < schedule.blocks < layers]
    step = max(1, len(inner) // most)
    named = {f"schedule:{schedule.blocks}": schedule for schedule in inner[step - 1 :: step]}
    return named | {
        f"alternate:{run}+{jump}": alternating_schedule(layers, run, jump)
        for run, jump in ((1, 1), (2, 1), (3, 1))
        if run + jump <= layers
    }


@torch.inference_mode()
def run_schedule(
    lm: LM, inputs: TokenRows, rows: list[int], maps: ShortcutMaps, schedule: SkipSchedule
) -> Tensor:
    """Layer L at the marks of these rows when the model follows a schedule."""

    def states_of(chosen: Sequence[int]) -> dict[int, Tensor]:
        ids, mask = (x.to(lm.device) for x in pad([inputs.rows[i] for i in chosen], lm.pad_id))
        hidden = collect_states(lm, ids, mask, [0]).layers[0]
        for kind, group in groupby(schedule.steps, key=lambda step: step[2]):
            steps = list(group)
            if kind == "run":
                hidden = run_from(lm, hidden, steps[0][0], ids, mask, to=steps[-1][1])
                continue
            for source, target, _ in steps:
                hidden = maps.jump(source, target)(hidden)
        return {
            row: hidden[n, torch.as_tensor(inputs.marks[row])].float().cpu()
            for n, row in enumerate(chosen)
        }

    what = [maps.digest, "schedule", [list(step) for step in schedule.steps]]
    return states_at_marks(lm, inputs, rows, states_of, what)
