"""What decoding costs on this machine: measured once per model, then kept in the cache folder.

The choice of a draft is made on every call, from the text at hand. The times it is based on depend
only on the model and the machine; measuring them takes as long as generating some 50 tokens.
"""

import os
import platform
from dataclasses import dataclass
from typing import Any

import torch

from cutaway.core.digest import digest_json
from cutaway.home import read_memo, write_memo
from cutaway.methods.shortcut.step_timing import StepTimes, measure_step_times, processor_clock
from cutaway.models.lm import LM
from cutaway.models.small_matmul import (
    MatmulTable,
    MatmulVariant,
    measure_variants,
    tuned_small_matmuls,
)

MEMO = "decoding"


@dataclass(frozen=True)
class MachineTimes:
    """The fastest products of a few rows, and the time of the model's steps with them."""

    matmuls: MatmulTable
    steps: StepTimes

    def plain(self) -> dict[str, Any]:
        """JSON-ready values."""
        return {
            "matmuls": [
                [list(shape), [[count, one.transposed, one.rows] for count, one in table.items()]]
                for shape, table in self.matmuls.items()
            ],
            "blocks": list(self.steps.blocks.items()),
            "head": list(self.steps.head.items()),
            "overhead": self.steps.overhead,
        }


def times_from_plain(plain: dict[str, Any]) -> MachineTimes:
    """The times of `MachineTimes.plain`."""
    return MachineTimes(
        {
            tuple(shape): {count: MatmulVariant(side, rows) for count, side, rows in table}
            for shape, table in plain["matmuls"]
        },
        StepTimes(dict(plain["blocks"]), dict(plain["head"]), plain["overhead"]),
    )


def machine_times(lm: LM, most: int) -> MachineTimes:
    """The times of this model for 1 to `most` tokens at once: kept ones, or measured now."""
    key = digest_json(
        {
            "model": lm.identity, "dtype": lm.dtype, "device": lm.device, "most": most,
            "threads": torch.get_num_threads(), "torch": torch.__version__,
            "machine": [platform.node(), platform.machine(), os.cpu_count()],
        }
    )  # fmt: skip
    kept = read_memo(MEMO, key)
    if isinstance(kept, dict):
        return times_from_plain(kept)
    matmuls = measure_variants(lm, most, tries=1, clock=processor_clock(lm))
    with tuned_small_matmuls(lm, matmuls):
        times = MachineTimes(matmuls, measure_step_times(lm))
    write_memo(MEMO, key, times.plain())
    return times
