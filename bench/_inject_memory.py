"""Peak memory of a Fisher above the open model, in a process that does nothing else."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.extract_memory import memory_mb, reset_peak


def elsewhere(model: str, rows: int) -> dict[str, Any]:
    """The figures of `watched`, from a process of its own."""
    command = [sys.executable, "-m", "bench._inject_memory", model, str(rows)]
    alone = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    place = Path(__file__).parents[1]
    done = subprocess.run(command, capture_output=True, text=True, cwd=place, env=alone)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed: {done.stderr[-800:]}")
    return json.loads(done.stdout.splitlines()[-1])


def watched(model: str, rows: int) -> dict[str, Any]:
    """Open the model, note the resident memory, make its Fisher, note the high-water mark."""
    from cutaway.console import Console
    from cutaway.data.load import load_text_set
    from cutaway.methods.inject.examples import lm_examples
    from cutaway.methods.inject.fisher_sums import sum_squared_gradients
    from cutaway.models.load import open_model

    lm = open_model(model, check=False)
    examples = lm_examples(lm, load_text_set("docs", limit=rows, seed=0))
    # Weights are mapped from their file: touched once, so that they count as the model's.
    weights = sum(float(p.sum()) * 0 + p.nbytes for p in lm.params().values()) / 2**20
    gc.collect()
    reset_peak()
    base = memory_mb("VmRSS")
    made = sum_squared_gradients(lm, examples, console=Console(quiet=True))
    peak = memory_mb("VmHWM")
    fisher = sum(value.nbytes for value in made.total.values()) / 2**20
    found = {"rows": rows, "weights_mb": weights, "fisher_mb": fisher, "base_mb": base}
    return {k: round(v, 1) for k, v in found.items()} | {"extra_mb": round(peak - base, 1)}


if __name__ == "__main__":
    print(json.dumps(watched(sys.argv[1], int(sys.argv[2]))))
